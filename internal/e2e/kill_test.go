package e2e_test

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"testing"

	"github.com/google/go-cmp/cmp"

	api "pictor/gen"
	"pictor/internal/job"
	"pictor/internal/point"
)

// kill -9 of the worker in the middle of a picture: its lease ends, the next
// worker claims the job under the next fence, and the books show one charge.
func TestWorker_killed_in_the_middle_of_a_job(t *testing.T) {
	t.Parallel()
	s := start(t, point.Point)
	first := s.run(t, "worker", "PICTOR_WORKERS=1")
	answer, err := s.client.Upscale(t.Context(), &api.UpscaleReqImagePNG{Data: bytes.NewReader(large(t))},
		api.UpscaleParams{Scale: api.NewOptScale(api.Scale4)})
	must(t, err)
	id := job.ID(answer.Response.ID.String())
	for {
		j, err := s.db.Job(t.Context(), 0, id)
		must(t, err)
		if j.State == job.Processing {
			break
		}
		if j.State.Final() {
			t.Fatalf("the job was faster than the kill: %+v", j)
		}
	}
	first.kill()

	s.run(t, "worker", "PICTOR_WORKERS=1")
	done := &api.Job{}
	for done.Status != api.JobStatusCompleted && done.Status != api.JobStatusFailed {
		done, err = s.client.GetJob(t.Context(), api.GetJobParams{ID: answer.Response.ID, Wait: api.NewOptWait(60)})
		must(t, err)
	}
	if done.Status != api.JobStatusCompleted {
		t.Fatalf("got %+v, want completed", done)
	}
	j, err := s.db.Job(t.Context(), 0, id)
	must(t, err)
	if j.Fence != 2 {
		t.Errorf("completed under fence %d, want 2: one claim of the killed worker, one of the next", j.Fence)
	}
	if diff := cmp.Diff([]point.Amount{-150, 1000}, amounts(t, s.db, s.account.ID)); diff != "" {
		t.Errorf("the ledger, newest first: %s", diff)
	}
	s.checkInvariants(t)
}

// large is a picture that takes seconds to enlarge.
func large(t *testing.T) []byte {
	t.Helper()
	picture := image.NewGray(image.Rect(0, 0, 1000, 1000))
	for y := range 1000 {
		for x := range 1000 {
			picture.SetGray(x, y, color.Gray{Y: uint8(x ^ y)})
		}
	}
	var b bytes.Buffer
	must(t, png.Encode(&b, picture))
	return b.Bytes()
}
