package app_test

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/app"
)

func TestPictures_refuse_a_model_that_is_none_or_not_there(t *testing.T) {
	folder := t.TempDir()
	for _, row := range []struct {
		env  map[string]string
		want []string // in the mistakes; none for no mistake
	}{
		{map[string]string{}, nil},
		{map[string]string{"PICTOR_MODELS_DIR": "/no/such/folder"}, nil}, // the shipped ones need none
		{map[string]string{"PICTOR_MODELS_DIR": folder, "PICTOR_REMOVE_BG_MODEL": "bria-rmbg"}, []string{"PICTOR_REMOVE_BG_MODEL", "isnet-anime", "BEN2"}},
		{map[string]string{"PICTOR_MODELS_DIR": folder, "PICTOR_UPSCALE_2X_MODEL": "RealESRGAN_x4plus"}, []string{"PICTOR_UPSCALE_2X_MODEL", "RealESRGAN_x2plus"}},
		{map[string]string{"PICTOR_MODELS_DIR": folder, "PICTOR_REMOVE_BG_MODEL": "u2net", "PICTOR_UPSCALE_4X_MODEL": "RealESRGAN_x4plus"},
			[]string{"PICTOR_REMOVE_BG_MODEL", "pictor models pull u2net", "PICTOR_UPSCALE_4X_MODEL", "pictor models pull RealESRGAN_x4plus", folder}},
	} {
		c, err := parse(t, row.env)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Pictures.Mistakes()
		if (err == nil) != (row.want == nil) {
			t.Errorf("%v: %v", row.env, err)
		}
		for _, want := range row.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v does not name %s", row.env, err, want)
			}
		}
	}
}

// Without a folder in the configuration, models are where other programs keep
// their data, and a user without a home has the shipped ones.
func TestModels_lie_in_the_users_data_folder(t *testing.T) {
	t.Setenv("XDG_DATA_HOME", "/data")
	paths := func() (all []string) {
		for _, m := range app.Models(app.ModelChoice{}) {
			all = append(all, m.Path)
		}
		return all
	}
	if all := paths(); len(all) != 18 || all[5] != "/data/pictor/models/u2net.onnx" {
		t.Errorf("got %q", all)
	}
	t.Setenv("XDG_DATA_HOME", "")
	t.Setenv("HOME", "")
	if all := paths(); len(all) != 5 {
		t.Errorf("without a home: %q", all)
	}
}

func TestReady_and_metrics_name_the_models(t *testing.T) {
	t.Parallel()
	p, chosen := newPlace(t), pictures()
	chosen.Upscale2xModel = "upscale-2x-fast"
	w, err := app.NewWorker(t.Context(), app.WorkerConfig{Pictures: chosen, Ops: app.Ops{OpsListen: "127.0.0.1:0"}}, p.stores, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.Start()
	defer w.Stop()
	got := ask("", http.MethodGet, w.OpsURL+"/readyz", "", nil)
	want := map[string]any{"remove-bg": "remove-bg", "upscale-2x": "upscale-2x-fast", "upscale-4x": "upscale-4x"}
	if diff := cmp.Diff(want, got.body["models"]); diff != "" {
		t.Error(diff)
	}
	response, err := http.Get(w.OpsURL + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if line := `pictor_model_info{model="upscale-2x-fast",task="upscale-2x"} 1`; err != nil || !strings.Contains(string(b), line) {
		t.Errorf("%v: /metrics lacks %s", err, line)
	}
}
