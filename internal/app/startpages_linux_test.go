package app_test

import (
	"bytes"
	"os"
	"strconv"
	"strings"
	"testing"

	"pictor/internal/app"
	"pictor/internal/models"
)

// No other test may run meanwhile: it looks at the memory of the process.
func TestReleaseStartPages_gives_back_the_pages_of_files_and_loses_nothing(t *testing.T) {
	model := models.Shipped()[0]
	before, err := model.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	held := pagesOfFiles(t)
	app.ReleaseStartPages()
	if released := held - pagesOfFiles(t); released < len(before) {
		t.Errorf("of %d bytes %d are released, want at least as many as the model has, %d", held, released, len(before))
	}

	if again, err := model.Bytes(); err != nil || !bytes.Equal(again, before) {
		t.Errorf("the model inside the program is another one than before: %v", err)
	}
}

// pagesOfFiles is how many bytes of files are in the memory of this process.
func pagesOfFiles(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	kilobytes, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes << 10
}
