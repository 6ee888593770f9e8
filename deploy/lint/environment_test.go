package lint_test

import (
	"os"
	"regexp"
	"slices"
	"testing"
)

var variable = regexp.MustCompile(`PICTOR_[A-Z0-9_]+`)

// known are the settings that the README's table lists, which the code makes.
func known(t *testing.T) []string {
	t.Helper()
	return variable.FindAllString(read(t, "../../README.md"), -1)
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A setting that is misspelt would be ignored without a word.
func TestEveryFile_names_settings_that_exist(t *testing.T) {
	t.Parallel()
	settings := known(t)
	files := []string{"../Dockerfile", "../compose.yaml", "../systemd/pictor.env", "../systemd/pictor-serve.service", "../systemd/pictor-worker.service"}
	for _, path := range append(files, manifests(t)...) {
		for _, name := range variable.FindAllString(read(t, path), -1) {
			if !slices.Contains(settings, name) && name != "PICTOR_IMAGE" { // Compose's own
				t.Errorf("%s: there is no setting %s", path, name)
			}
		}
	}
}
