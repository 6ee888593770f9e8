package vips_test

import (
	"os"
	"testing"

	"pictor/internal/vips"
)

func TestMemory_remembers_the_most(t *testing.T) {
	t.Parallel()
	file, err := os.ReadFile("../../testdata/images/astronaut.jpg")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := vips.Decode(file); err != nil {
		t.Fatal(err)
	}
	if now, most := vips.Memory(); most == 0 || now > most {
		t.Errorf("%d bytes now, %d at most", now, most)
	}
}
