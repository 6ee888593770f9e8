package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func containsAll(s string, parts ...string) bool {
	for _, part := range parts {
		if !strings.Contains(s, part) {
			return false
		}
	}
	return true
}

func TestDemo_runs_every_task_and_leaves_nothing_but_results(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pictures, out, temp := filepath.Join(dir, "pictures"), filepath.Join(dir, "out"), filepath.Join(dir, "tmp")
	for _, d := range []string{pictures, temp} {
		if err := os.Mkdir(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	copyPicture(t, pictures, "coffee-alpha.webp")

	p := start(t, dir, "demo", pictures, "--output", out, "--temp", temp, "--json")
	if code := p.wait(); code != 0 {
		t.Fatalf("it ended with %d", code)
	}
	var got []string
	for _, row := range document[[]map[string]any](t, string(p.stdout.bytes())) {
		got = append(got, strings.Join([]string{row["task"].(string), row["size"].(string), row["result"].(string)}, " "))
		if _, err := os.Stat(row["file"].(string)); err != nil {
			t.Error(err)
		}
		if row["seconds"].(float64) <= 0 || row["balance"].(float64) >= 1000 {
			t.Errorf("got %v", row)
		}
	}
	want := []string{"remove-bg 345x300 png 345x300", "upscale-2x 345x300 webp 690x600", "upscale-4x 345x300 webp 1380x1200"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, sheet := range []string{"remove-bg", "upscale-2x", "upscale-4x"} {
		if got := size(t, filepath.Join(out, "before-after", "coffee-alpha-webp-"+sheet+".jpg")); got.X <= got.Y {
			t.Errorf("the sheet of %s is %v: it shows two pictures side by side", sheet, got)
		}
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
