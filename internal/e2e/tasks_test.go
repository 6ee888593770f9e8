package e2e_test

import (
	"bytes"
	"testing"

	"github.com/google/uuid"

	api "pictor/gen"
	"pictor/internal/point"
	"pictor/internal/testkit/parts"
)

// A worker bound to some tasks leaves the others alone, and needs no model for
// them: the first one here could not even start with all.
func TestWorker_takes_only_its_tasks(t *testing.T) {
	t.Parallel()
	s := start(t, point.Point)
	cup := parts.Picture(t, "cup.png")
	later, err := s.client.Upscale(t.Context(), &api.UpscaleReqImagePNG{Data: bytes.NewReader(cup)}, api.UpscaleParams{})
	must(t, err)

	s.run(t, "worker", "PICTOR_TASKS=remove-bg", "PICTOR_UPSCALE_4X_MODEL=RealESRGAN_x4plus", "PICTOR_MODELS_DIR="+t.TempDir())
	done, err := s.client.RemoveBackground(t.Context(), &api.RemoveBackgroundReqImagePNG{Data: bytes.NewReader(cup)},
		api.RemoveBackgroundParams{Wait: api.NewOptWait(60)})
	must(t, err)
	s.await(t, done.Response.ID)
	left, err := s.client.GetJob(t.Context(), api.GetJobParams{ID: later.Response.ID})
	must(t, err)
	if left.Status != api.JobStatusQueued {
		t.Errorf("the other task's job is %s, want queued", left.Status)
	}

	s.run(t, "worker", "PICTOR_TASKS=upscale-2x,upscale-4x")
	s.await(t, later.Response.ID)
}

// await returns when the job is completed.
func (s *stack) await(t *testing.T, id uuid.UUID) {
	t.Helper()
	until(t, "the job is completed", func() bool {
		j, err := s.client.GetJob(t.Context(), api.GetJobParams{ID: id, Wait: api.NewOptWait(60)})
		must(t, err)
		if j.Status == api.JobStatusFailed {
			t.Fatalf("the job failed: %+v", j)
		}
		return j.Status == api.JobStatusCompleted
	})
}
