// Package e2e_test runs the whole flow through the generated client. This file
// reads as the table in internal/doc.go.
package e2e_test

import (
	"bytes"
	"errors"
	"image"
	"image/png"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	api "pictor/gen"
	"pictor/internal/blob"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/parts"
)

const (
	stuckAfter = 5 * time.Minute
	resultTTL  = time.Hour
)

func TestLifecycle(t *testing.T) {
	t.Parallel()
	s := start(t, 10*point.Point)
	picture := parts.Picture(t, "astronaut.jpg")

	// 1-2: the key is checked, the bytes are read and checked.
	answer, err := s.client.RemoveBackground(t.Context(),
		&api.RemoveBackgroundReqImageJpeg{Data: bytes.NewReader(picture)}, api.RemoveBackgroundParams{})
	must(t, err)
	queued := answer.Response
	id := job.ID(queued.ID.String())
	if answer.StatusCode != http.StatusAccepted || queued.Status != api.JobStatusQueued {
		t.Errorf("got %d %s, want 202 queued", answer.StatusCode, queued.Status)
	}
	if got, want := answer.Location.Value, "/api/v1/jobs/"+string(id); got != want {
		t.Errorf("Location %s, want %s", got, want)
	}

	// 3: the input is stored.
	store, err := blob.Open(t.Context(), s.stores.BlobURL)
	must(t, err)
	defer store.Close()
	if diff := cmp.Diff(picture, read(t, store, id.InputKey())); diff != "" {
		t.Error("the stored input is not what was sent")
	}

	// 4: charged and recorded.
	if diff := cmp.Diff(api.Billing{Cost: 0.1, Balance: 9.9, Currency: "Point"}, queued.Billing, cmp.AllowUnexported(api.Billing{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]point.Amount{-100, 10_000}, amounts(t, s.db, s.account.ID)); diff != "" {
		t.Errorf("the ledger, newest first: %s", diff)
	}

	// 5: queued.
	backlog, err := s.queue.Backlog(t.Context())
	must(t, err)
	if backlog[job.RemoveBG] != 1 {
		t.Errorf("%d messages wait, want 1", backlog[job.RemoveBG])
	}

	// 6-10: claimed, rendered, stored, completed; the waiter is woken.
	s.work(t)
	done, err := s.client.GetJob(t.Context(), api.GetJobParams{ID: queued.ID, Wait: api.NewOptWait(60)})
	must(t, err)
	if done.Status != api.JobStatusCompleted || done.Progress != 100 || done.Refunded {
		t.Fatalf("got %+v, want completed", done)
	}

	// 11: the result is read, through the API and from the result host.
	raw, err := s.client.GetJobResult(t.Context(), api.GetJobResultParams{ID: queued.ID})
	must(t, err)
	viaAPI := body(t, raw.(*api.GetJobResultOKRawImagePNG).Response)
	public, err := http.Get(done.ResultURL.Value.String())
	must(t, err)
	if diff := cmp.Diff(viaAPI, body(t, public)); diff != "" {
		t.Error("the two hosts serve different results")
	}
	checkCutout(t, viaAPI)

	// What is left: one charge, sound books.
	me, err := s.client.GetMe(t.Context())
	must(t, err)
	if me.Balance != 9.9 || me.ImagesAffordable != 99 {
		t.Errorf("balance %v affords %d, want 9.9 and 99", me.Balance, me.ImagesAffordable)
	}
	s.checkInvariants(t)
}

func TestLifecycle_of_a_job_that_fails(t *testing.T) {
	t.Parallel()
	s := start(t, point.Point)
	s.work(t)
	broken := parts.Picture(t, "rocket.jpg")
	broken = broken[:len(broken)/2] // its header is in order, so only decoding shows it
	answer, err := s.client.Upscale(t.Context(), &api.UpscaleReqImageJpeg{Data: bytes.NewReader(broken)},
		api.UpscaleParams{Wait: api.NewOptWait(60), Scale: api.NewOptScale(api.Scale4)})
	must(t, err)
	failed := answer.Response
	if answer.StatusCode != http.StatusOK || failed.Status != api.JobStatusFailed || !failed.Refunded || failed.Cost != 0.15 {
		t.Errorf("got %d %+v, want 200, failed and refunded at a cost that stays", answer.StatusCode, failed)
	}
	if message := failed.Message; !strings.Contains(message, "cut off") {
		t.Errorf("the client reads %q, and not what is wrong with the picture", message)
	}
	_, err = s.client.GetJobResult(t.Context(), api.GetJobResultParams{ID: failed.ID})
	var refused *api.ErrorStatusCodeWithHeaders
	if !errors.As(err, &refused) || refused.StatusCode != http.StatusConflict || refused.Response.Error.Code != "job_failed" {
		t.Errorf("got %v, want 409 job_failed", err)
	}
	if diff := cmp.Diff([]point.Amount{150, -150, 1000}, amounts(t, s.db, s.account.ID)); diff != "" {
		t.Errorf("the ledger, newest first: %s", diff)
	}
	s.checkInvariants(t)
}

// A worker that stops in the middle of a picture leaves nothing behind: the next
// one brings the job to its end.
func TestLifecycle_goes_on_when_workers_change(t *testing.T) {
	t.Parallel()
	s := start(t, point.Point)
	var ids []api.JobWithBilling
	for range job.MaxRunning {
		answer, err := s.client.Upscale(t.Context(), &api.UpscaleReqImagePNG{Data: bytes.NewReader(parts.Picture(t, "cup.png"))}, api.UpscaleParams{})
		must(t, err)
		ids = append(ids, answer.Response)
	}
	s.work(t)()
	s.work(t)
	for _, j := range ids {
		done, err := s.client.GetJob(t.Context(), api.GetJobParams{ID: j.ID, Wait: api.NewOptWait(60)})
		must(t, err)
		if done.Status != api.JobStatusCompleted {
			t.Errorf("got %+v, want completed", done)
		}
	}
	if got := len(amounts(t, s.db, s.account.ID)); got != job.MaxRunning+1 {
		t.Errorf("%d ledger rows, want a credit and %d charges", got, job.MaxRunning)
	}
	s.checkInvariants(t)
}

func checkCutout(t *testing.T, b []byte) {
	t.Helper()
	decoded, err := png.Decode(bytes.NewReader(b))
	must(t, err)
	cutout, ok := decoded.(*image.NRGBA)
	if !ok || cutout.Rect != image.Rect(0, 0, 512, 512) {
		t.Fatalf("got a %T of %v, want straight alpha and the input's size", decoded, decoded.Bounds())
	}
	if face := cutout.NRGBAAt(230, 130).A; face < 250 {
		t.Errorf("the face has alpha %d, want it kept", face)
	}
	if wall := cutout.NRGBAAt(330, 60); wall.A > 5 {
		t.Errorf("the wall has alpha %d, want it removed", wall.A)
	}
}

func amounts(t *testing.T, db *postgres.DB, account int64) (amounts []point.Amount) {
	t.Helper()
	rows, err := db.Ledger(t.Context(), account)
	must(t, err)
	for _, r := range rows {
		amounts = append([]point.Amount{r.Amount}, amounts...)
	}
	return amounts
}

func read(t *testing.T, store *blob.Store, key string) []byte {
	t.Helper()
	object, err := store.Open(t.Context(), key)
	must(t, err)
	defer object.Close()
	b, err := io.ReadAll(object)
	must(t, err)
	return b
}

func body(t *testing.T, r *http.Response) []byte {
	t.Helper()
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Fatalf("status %s", r.Status)
	}
	b, err := io.ReadAll(r.Body)
	must(t, err)
	return b
}
