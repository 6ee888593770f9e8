package render_test

import (
	"context"
	"io"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/job"
	"pictor/internal/onnx"
	"pictor/internal/render"
)

func TestRender_reports_its_stages(t *testing.T) {
	t.Parallel()
	e, err := onnx.Open(onnx.Config{Engine: onnx.Runtime})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	told := make(map[job.Task][]render.Lap)
	r, err := render.New(render.Config{Engine: e, Dir: t.TempDir(), Stage: func(_ context.Context, task job.Task, l render.Lap) {
		told[task] = append(told[task], l)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for task, want := range map[job.Task][]render.Stage{
		job.RemoveBG:  {render.Decode, render.Model, render.Matte, render.Encode},
		job.Upscale2x: {render.Decode, render.Model, render.Encode},
	} {
		if _, err := r.Render(t.Context(), task, photo(t, "cup.png"), io.Discard, nil); err != nil {
			t.Fatal(err)
		}
		var got []render.Stage
		for _, l := range told[task] {
			got = append(got, l.Stage)
			if l.Busy <= 0 || l.Busy > l.To.Sub(l.From) {
				t.Errorf("%s: %s was busy for %s between %s and %s", task, l.Stage, l.Busy, l.From, l.To)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", task, diff)
		}
	}
	t.Run("of a picture that is given up, those that it had", func(t *testing.T) {
		before := len(told[job.Upscale4x])
		if _, err := r.Render(t.Context(), job.Upscale4x, []byte("no picture"), io.Discard, nil); err == nil {
			t.Fatal("it rendered what is no picture")
		}
		if got := told[job.Upscale4x][before:]; !slices.ContainsFunc(got, func(l render.Lap) bool { return l.Stage == render.Decode }) || len(got) != 1 {
			t.Errorf("told %v", got)
		}
	})
}
