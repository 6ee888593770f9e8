package models_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pictor/internal/models"
)

// /dev/full is a disk without room.
func TestPull_says_that_the_disk_is_full(t *testing.T) {
	t.Parallel()
	content := noise(100_000)
	d, p := model(t, content), publish(t, plain(content))
	if err := os.MkdirAll(filepath.Dir(d.Path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/full", d.Path+".part"); err != nil {
		t.Fatal(err)
	}
	_, err := d.Pull(t.Context(), models.Source{URL: p.URL})
	if err == nil || !strings.Contains(err.Error(), "no room") || !strings.Contains(err.Error(), "100000 bytes") {
		t.Errorf("got %v, want that there is no room", err)
	}
}
