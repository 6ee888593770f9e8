package models_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/job"
	"pictor/internal/models"
)

func foreign(t *testing.T) []models.Description {
	t.Helper()
	return models.All(t.TempDir())[len(models.Shipped()):]
}

func TestAll_has_the_models_that_operators_ask_for(t *testing.T) {
	t.Parallel()
	var names []string
	for _, d := range foreign(t) {
		names = append(names, d.Name)
	}
	want := []string{
		"u2net", "u2netp", "u2net_human_seg", "isnet-general-use", "isnet-anime",
		"birefnet-general", "birefnet-general-lite", "birefnet-portrait", "BEN2",
		"RealESRGAN_x2plus", "RealESRGAN_x4plus", "RealESRGAN_x4plus_anime_6B", "realesr-general-x4v3",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Error(diff)
	}
}

func TestAll_describes_every_foreign_model_in_full(t *testing.T) {
	t.Parallel()
	files, sums := map[string]bool{}, map[string]bool{}
	for _, d := range foreign(t) {
		u, err := url.Parse(d.URL)
		if err != nil || u.Scheme != "https" || !strings.HasSuffix(u.Path, ".onnx") {
			t.Errorf("%s: URL %q, %v", d.Name, d.URL, err)
		}
		if err := models.CheckSHA256(d.SHA256); err != nil || d.Size < 1<<20 || d.Witness == "" || d.Origin == "" {
			t.Errorf("%s: %v, %d bytes, %q, %q", d.Name, err, d.Size, d.Witness, d.Origin)
		}
		if files[d.File] || sums[d.SHA256] {
			t.Errorf("%s shares its file or checksum with another", d.Name)
		}
		files[d.File], sums[d.SHA256] = true, true
		if d.Licence != "Apache-2.0" && d.Licence != "MIT" && d.Licence != "BSD-3-Clause" {
			t.Errorf("%s has the licence %q", d.Name, d.Licence)
		}
		if d.Std[0] <= 0 || d.Std[1] <= 0 || d.Std[2] <= 0 {
			t.Errorf("%s divides by %v", d.Name, d.Std)
		}
		if mask := d.Task == job.RemoveBG; mask != (d.Side > 0) || mask == (d.Margin > 0) || d.Scale != max(d.Task.Scale(), 1) {
			t.Errorf("%s: side %d, margin %d, scale %d", d.Name, d.Side, d.Margin, d.Scale)
		}
	}
}

func TestAll_handles_the_models_of_a_family_alike(t *testing.T) {
	t.Parallel()
	handled := map[string]models.Description{}
	for _, d := range foreign(t) {
		name := d.Name
		d.Name, d.File, d.Path, d.SHA256, d.MD5, d.URL, d.Size, d.Witness = "", "", "", "", "", "", 0, ""
		handled[name] = d
	}
	for one, others := range map[string][]string{
		"u2net":             {"u2netp", "u2net_human_seg"},
		"birefnet-general":  {"birefnet-general-lite", "birefnet-portrait"},
		"RealESRGAN_x4plus": {"RealESRGAN_x4plus_anime_6B"},
	} {
		for _, other := range others {
			if diff := cmp.Diff(handled[one], handled[other]); diff != "" {
				t.Errorf("%s and %s: %s", one, other, diff)
			}
		}
	}
}

func TestBytes_of_a_foreign_model(t *testing.T) {
	t.Parallel()
	content := noise(100)
	d := model(t, content)
	_, err := d.Bytes()
	if missing, ok := errors.AsType[*models.MissingError](err); !ok || !strings.Contains(missing.Error(), "run `pictor models pull small`") || !strings.Contains(missing.Error(), filepath.Dir(d.Path)) || d.Installed() {
		t.Errorf("missing: %v, installed %v", err, d.Installed())
	}
	put := func(name string, b []byte) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put(d.Path, content)
	if b, err := d.Bytes(); err != nil || string(b) != string(content) || !d.Installed() || d.Own() {
		t.Errorf("there: %v, installed %v, own %v", err, d.Installed(), d.Own())
	}
	put(d.Path, content[:99])
	if _, err := d.Bytes(); err == nil || !strings.Contains(err.Error(), "models pull small") || !strings.Contains(err.Error(), d.Path+".sha256") {
		t.Errorf("cut off: %v", err)
	}
	put(d.Path+".sha256", []byte("not hex  small.onnx\n"))
	if _, err := d.Bytes(); err == nil || !strings.Contains(err.Error(), "no SHA-256") {
		t.Errorf("a broken note of the operator: %v", err)
	}
}
