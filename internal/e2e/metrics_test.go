package e2e_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	api "pictor/gen"
	"pictor/internal/app"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/testkit/parts"
	"pictor/internal/testkit/pgtest"
)

func TestMetrics_of_a_worker(t *testing.T) {
	t.Parallel()
	s := start(t, point.Point)
	worker := s.run(t, "worker", "PICTOR_WORKERS=1")
	good := parts.Picture(t, "cup.png")
	for _, picture := range [][]byte{good, good[:len(good)/2]} { // only decoding shows that the second is broken
		_, err := s.client.Upscale(t.Context(), &api.UpscaleReqImagePNG{Data: bytes.NewReader(picture)}, api.UpscaleParams{Wait: api.NewOptWait(60)})
		must(t, err)
	}
	for series, want := range map[string]float64{
		`pictor_claims_total{outcome="completed",task="upscale-2x"}`:   1,
		`pictor_claims_total{outcome="refused",task="upscale-2x"}`:     1,
		`pictor_picture_seconds_count{task="upscale-2x"}`:              1,
		`pictor_refunds_total{reason="refused"}`:                       1,
		`pictor_queue_seconds_count{task="upscale-2x"}`:                2,
		`pictor_stage_seconds_count{stage="fetch",task="upscale-2x"}`:  2,
		`pictor_stage_seconds_count{stage="decode",task="upscale-2x"}`: 2,
		`pictor_stage_seconds_count{stage="model",task="upscale-2x"}`:  1,
		`pictor_stage_seconds_count{stage="encode",task="upscale-2x"}`: 1,
		`pictor_stage_seconds_count{stage="store",task="upscale-2x"}`:  1,
		`pictor_engine_info{engine="onnxruntime",provider="CPU"}`:      1,
		`pictor_worker_slots`: 1,
		`pictor_worker_busy`:  0,
	} {
		// A client may be answered a moment before the worker counts.
		until(t, series, func() bool { return worker.metric(t, series) == want })
	}
}

// moved is the largest value, of whatever sign, that each series had.
type moved map[string]float64

func (m moved) look(t *testing.T, at ...*process) {
	t.Helper()
	for _, p := range at {
		response, err := http.Get(p.opsURL + "/metrics")
		must(t, err)
		for lines := bufio.NewScanner(response.Body); lines.Scan(); {
			i := strings.LastIndexByte(lines.Text(), ' ')
			if i < 0 || strings.HasPrefix(lines.Text(), "#") {
				continue
			}
			value, err := strconv.ParseFloat(lines.Text()[i+1:], 64)
			must(t, err)
			series := lines.Text()[:i]
			m[series] = max(m[series], math.Abs(value))
		}
		_ = response.Body.Close()
	}
}

// still are those of the series that never had another value than 0.
func (m moved) still(series ...string) (still []string) {
	for _, s := range series {
		if m[s] == 0 {
			still = append(still, s)
		}
	}
	return still
}

// stillOfReadme are the metrics of the README of which no series had.
func (m moved) stillOfReadme() (still []string) {
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)").FindAllStringSubmatch(app.MetricsTable(), -1) {
		found := false
		for series, value := range m {
			name, _, _ := strings.Cut(series, "{")
			found = found || value > 0 && strings.TrimSuffix(name, "_count") == row[1]
		}
		if !found {
			still = append(still, row[1])
		}
	}
	return still
}

// An alert on a metric that never moves is a false friend. Everything happens
// here that a metric of the README counts.
func TestMetrics_all_move(t *testing.T) {
	t.Parallel()
	s, seen := newStack(t), make(moved)
	must(t, s.queue.Ensure(t.Context()))
	s.account = pgtest.NewAccount(t, s.db, 1000*point.Point)
	raw, err := sql.Open("postgres", s.stores.DatabaseURL)
	must(t, err)
	defer raw.Close()
	change := func(statement string, id job.ID) {
		_, err := raw.ExecContext(t.Context(), statement, string(id))
		must(t, err)
	}
	account := pgtest.NewAccount(t, s.db, 10*point.Point).ID

	// Two workers died with a picture, and the third one's lease is over.
	poison := pgtest.Claimed(t, s.db, account)
	change(`update jobs set lapses = 2, lease_until = now() - interval '1 hour' where id = $1`, poison.ID)
	must(t, s.queue.Publish(t.Context(), poison.Task, poison.ID, poison.Fence))
	worker := s.run(t, "worker", "PICTOR_WORKERS=1")
	until(t, "the poison is given up", func() bool {
		seen.look(t, worker)
		return len(seen.still(`pictor_refunds_total{reason="given_up"}`)) == 0
	})

	// What the sweeper finds.
	change(`update jobs set created_at = created_at - interval '1 hour' where id = $1`, pgtest.Queued(t, s.db, account).ID)
	stuck := pgtest.Claimed(t, s.db, account).ID
	change(`update jobs set heartbeat_at = heartbeat_at - interval '1 hour' where id = $1`, stuck)
	lost := pgtest.Queued(t, s.db, account).ID
	_, err = s.db.Enqueued(t.Context(), lost)
	must(t, err)
	change(`update jobs set enqueued_at = enqueued_at - interval '1 hour' where id = $1`, lost)
	blobs := strings.TrimPrefix(s.stores.BlobURL, "file://")
	must(t, os.MkdirAll(filepath.Join(blobs, "in"), 0o700))
	garbage := filepath.Join(blobs, "in", string(pgtest.NewID(t)))
	must(t, os.WriteFile(garbage, []byte("x"), 0o600))
	long := time.Now().Add(-24 * time.Hour)
	must(t, os.Chtimes(garbage, long, long))

	serve := s.run(t, "serve")
	client, picture := s.clientOf(t, serve.baseURL), parts.Picture(t, "cup.png")
	enlarge := func(wait int) *api.JobWithBilling {
		answer, err := client.Upscale(t.Context(), &api.UpscaleReqImagePNG{Data: bytes.NewReader(picture)}, api.UpscaleParams{Wait: api.NewOptWait(api.Wait(wait))})
		must(t, err)
		return &answer.Response
	}
	expired := enlarge(60)
	change(`update jobs set finished_at = finished_at - interval '1 week' where id = $1`, job.ID(expired.ID.String()))
	_, err = client.Upscale(t.Context(), &api.UpscaleReqImagePNG{Data: bytes.NewReader(picture[:len(picture)/2])}, api.UpscaleParams{Wait: api.NewOptWait(60)})
	must(t, err)

	// Somebody waits and a slot is busy for a moment only: again and again.
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			_, _ = client.Upscale(ctx, &api.UpscaleReqImagePNG{Data: bytes.NewReader(picture)}, api.UpscaleParams{Wait: api.NewOptWait(60)})
		}
	}()
	wanted := []string{
		`pictor_waiting_requests`, `pictor_worker_busy`, `pictor_vips_bytes`,
		`pictor_refunds_total{reason="orphan"}`, `pictor_refunds_total{reason="stuck"}`, `pictor_refunds_total{reason="refused"}`,
	}
	for _, action := range []string{"orphans", "stuck", "republished", "expired", "inputs", "garbage"} {
		wanted = append(wanted, `pictor_swept_total{action="`+action+`"}`)
	}
	for _, stage := range []string{"fetch", "decode", "model", "encode", "store"} {
		wanted = append(wanted, `pictor_stage_seconds_count{stage="`+stage+`",task="upscale-2x"}`)
	}
	defer func() { t.Logf("these never moved: %v %v", seen.still(wanted...), seen.stillOfReadme()) }()
	until(t, "everything happened", func() bool {
		seen.look(t, serve, worker)
		return len(seen.still(wanted...)) == 0
	})
	stop()
	<-stopped
	// Whoever asks why a job came to nothing finds it in a log.
	for ended, log := range map[job.ID]string{stuck: serve.log.String(), poison.ID: worker.log.String()} {
		if told := fmt.Sprintf("job=%s account=%d", ended, account); !strings.Contains(log, told) {
			t.Errorf("%q is not in the log: %s", told, log)
		}
	}

	// The books are read when a process starts, and then every minute. Jobs wait,
	// and somebody repaired a balance by hand.
	worker.stop(t)
	enlarge(0)
	_, err = raw.ExecContext(t.Context(), `update accounts set balance = balance + 7 where id = $1`, account)
	must(t, err)
	another := s.run(t, "serve")
	until(t, "the books are read", func() bool {
		seen.look(t, another)
		wanted = []string{`pictor_ledger_points{kind="charge"}`, `pictor_ledger_points{kind="refund"}`, `pictor_blob_bytes{kind="result"}`}
		return len(seen.still(wanted...))+len(seen.stillOfReadme()) == 0
	})
}
