package main

import (
	"image"
	_ "image/jpeg"
	_ "image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// outcome is a row of the client commands' document.
type outcome struct {
	File, Output, Error string
	Skipped             bool
	Job                 *struct {
		ID, Task, Status string
		Cost             float64
	}
}

func copyPicture(t *testing.T, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../../testdata/images", name))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func size(t *testing.T, path string) image.Point {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c, _, err := image.DecodeConfig(f)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return image.Pt(c.Width, c.Height)
}

func TestClient_writes_beside_the_pictures_and_skips_what_is_finished(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	dev(t, data)
	cup, astronaut := copyPicture(t, dir, "cup.png"), copyPicture(t, dir, "astronaut-orientation-6.jpg")
	missing := filepath.Join(dir, "missing.png")

	code, stdout, stderr := ask(t, dir, "remove-bg", cup, missing, astronaut, "--data", data, "--json")
	rows := document[[]outcome](t, stdout)
	if code != 1 || len(rows) != 3 || rows[0].Error != "" || rows[1].Error == "" || rows[2].Error != "" {
		t.Fatalf("one of three is missing: ended with %d, %v, %s", code, rows, stderr)
	}
	if diff := cmp.Diff(filepath.Join(dir, "astronaut-orientation-6-remove-bg.png"), rows[2].Output); diff != "" {
		t.Error(diff)
	}
	if got := size(t, rows[2].Output); got != image.Pt(320, 426) {
		t.Errorf("the upright portrait is %v", got)
	}
	if rows[0].Job == nil || rows[0].Job.Status != "completed" || rows[0].Job.Cost != 0.1 {
		t.Errorf("the job is %v", rows[0].Job)
	}

	code, stdout, _ = ask(t, dir, "remove-bg", cup, astronaut, "--data", data, "--json")
	if rows := document[[]outcome](t, stdout); code != 0 || !rows[0].Skipped || !rows[1].Skipped {
		t.Errorf("the second run ended with %d: %v", code, rows)
	}
	// As after an interruption between the charge and the download.
	if err := os.Remove(rows[0].Output); err != nil {
		t.Fatal(err)
	}
	code, stdout, _ = ask(t, dir, "remove-bg", cup, "--data", data, "--json")
	if again := document[[]outcome](t, stdout); code != 0 || again[0].Skipped || again[0].Job.ID != rows[0].Job.ID {
		t.Errorf("the third run ended with %d: %v", code, again)
	}
	if diff := cmp.Diff([]any{-0.1, -0.1}, charges(t, data)); diff != "" {
		t.Errorf("two pictures were worked on: %s", diff)
	}
}

func TestClient_upscales_to_the_file_or_folder_it_is_told(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	dev(t, data)
	cup := copyPicture(t, dir, "cup.png")
	for _, row := range []struct {
		output, want string
		scale        string
		side         int
	}{
		{filepath.Join(dir, "large.png"), filepath.Join(dir, "large.png"), "2", 480},
		{filepath.Join(dir, "new", "folder"), filepath.Join(dir, "new", "folder", "cup-upscale-4x.png"), "4", 960},
	} {
		code, _, stderr := ask(t, dir, "upscale", cup, "--scale", row.scale, "-o", row.output, "--data", data)
		if code != 0 {
			t.Fatalf("ended with %d: %s", code, stderr)
		}
		if got := size(t, row.want); got != image.Pt(row.side, row.side) {
			t.Errorf("%s is %v", row.want, got)
		}
	}
}

func TestClient_without_a_key_says_which_variable_is_missing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	code, _, stderr := ask(t, dir, "remove-bg", copyPicture(t, dir, "cup.png"))
	if code != 2 || !containsAll(stderr, "PICTOR_API_KEY", "--api-key") {
		t.Errorf("ended with %d: %s", code, stderr)
	}
	copyPicture(t, dir, "chelsea.png")
	code, _, stderr = ask(t, dir, "upscale", "a/cup.png", "b/cup.jpg", "-o", "out", "--api-key", "x")
	if code != 2 || !containsAll(stderr, "a/cup.png", "b/cup.jpg", "same file") {
		t.Errorf("two pictures of one name: %d: %s", code, stderr)
	}
}
