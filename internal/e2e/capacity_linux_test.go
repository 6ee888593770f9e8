package e2e_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"net/http"
	"strings"
	"testing"

	api "pictor/gen"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/testkit/parts"
	"pictor/internal/testkit/pgtest"
)

// BenchmarkCapacity is where the figures of the README's section "Capacity"
// come from: what a picture costs, in time of one core, in each process.
//
//	go test ./internal/e2e -run '^$' -bench Capacity -benchtime 10x
//
// Photographs go one after the other through `pictor serve` and `pictor worker`
// as a company runs them, and their results are downloaded. core-s is the
// worker's; ms of the API are for the whole request with upload, wait and
// download. Postgres is measured in transactions and write-ahead log, of which
// heartbeats and sweeps of the time that passed are a part.
func BenchmarkCapacity(b *testing.B) {
	for _, row := range []struct {
		task          job.Task
		width, height int
		imageType     string
	}{
		{job.RemoveBG, 800, 600, job.JPEG}, {job.RemoveBG, 2000, 1500, job.JPEG}, {job.RemoveBG, 4000, 3000, job.JPEG},
		{job.Upscale2x, 400, 300, job.JPEG}, {job.Upscale2x, 800, 600, job.JPEG}, {job.Upscale2x, 2000, 1500, job.JPEG},
		{job.Upscale4x, 400, 300, job.JPEG}, {job.Upscale4x, 800, 600, job.JPEG}, {job.Upscale4x, 4096, 3072, job.JPEG},
		{job.Upscale4x, 4096, 3072, job.PNG},
	} {
		b.Run(fmt.Sprintf("%s/%dx%d_%s", row.task, row.width, row.height, strings.TrimPrefix(row.imageType, "image/")), func(b *testing.B) {
			s := newStack(b)
			serve, worker := s.run(b, "serve"), s.run(b, "worker", "PICTOR_WORKERS=1")
			account := pgtest.NewAccount(b, s.db, 1_000_000*point.Point)
			client, err := api.NewClient(serve.baseURL, secret(pgtest.NewKey(b, s.db, account.ID)))
			must(b, err)
			database, err := sql.Open("postgres", s.stores.DatabaseURL)
			must(b, err)
			defer database.Close()
			photo := photograph(b, row.width, row.height, row.imageType)
			send(b, client, row.task, photo) // the first one of a process warms it up

			api, work, books := cpuTime(b, serve), cpuTime(b, worker), bookkeeping(b, database)
			b.ResetTimer()
			for range b.N {
				send(b, client, row.task, photo)
			}
			b.StopTimer()
			n := float64(b.N)
			perPicture := (cpuTime(b, worker) - work) / n
			after := bookkeeping(b, database)
			b.ReportMetric(perPicture, "core-s/picture")
			b.ReportMetric(3600/perPicture, "pictures/core-h")
			b.ReportMetric(memory(b, worker, "VmHWM")/1e6, "MB-worker-peak")
			b.ReportMetric((cpuTime(b, serve)-api)/n*1000, "ms-api/picture")
			b.ReportMetric((after.transactions-books.transactions)/n, "tx/picture")
			b.ReportMetric((after.logged-books.logged)/n/1000, "kB-wal/picture")
		})
	}
}

// send has a photograph worked on and downloads the result.
func send(b *testing.B, client *api.Client, task job.Task, photo []byte) {
	b.Helper()
	const wait = 60
	var answer *api.JobWithBillingStatusCodeWithHeaders
	var err error
	if task == job.RemoveBG {
		answer, err = client.RemoveBackground(b.Context(), &api.RemoveBackgroundReqImageJpeg{Data: bytes.NewReader(photo)},
			api.RemoveBackgroundParams{Wait: api.NewOptWait(wait)})
	} else {
		scale := api.Scale2
		if task == job.Upscale4x {
			scale = api.Scale4
		}
		var body api.UpscaleReq = &api.UpscaleReqImageJpeg{Data: bytes.NewReader(photo)}
		if http.DetectContentType(photo) == job.PNG {
			body = &api.UpscaleReqImagePNG{Data: bytes.NewReader(photo)}
		}
		answer, err = client.Upscale(b.Context(), body,
			api.UpscaleParams{Wait: api.NewOptWait(wait), Scale: api.NewOptScale(scale)})
	}
	must(b, err)
	status, where := answer.Response.Status, answer.Response.ResultURL
	for status != api.JobStatusCompleted {
		j, err := client.GetJob(b.Context(), api.GetJobParams{ID: answer.Response.ID, Wait: api.NewOptWait(wait)})
		must(b, err)
		if status, where = j.Status, j.ResultURL; status == api.JobStatusFailed {
			b.Fatalf("the job failed: %+v", j)
		}
	}
	result, err := http.Get(where.Value.String())
	must(b, err)
	defer result.Body.Close()
	if n, err := io.Copy(io.Discard, result.Body); err != nil || n == 0 || result.StatusCode != http.StatusOK {
		b.Fatalf("download the result: %d, %d bytes, %v", result.StatusCode, n, err)
	}
}

// photograph is the astronaut, made as large as asked for.
func photograph(b *testing.B, width, height int, imageType string) []byte {
	b.Helper()
	small, err := jpeg.Decode(bytes.NewReader(parts.Picture(b, "astronaut.jpg")))
	must(b, err)
	large := image.NewRGBA(image.Rect(0, 0, width, height))
	from := small.Bounds()
	for y := range height {
		for x := range width {
			large.Set(x, y, small.At(from.Min.X+x*from.Dx()/width, from.Min.Y+y*from.Dy()/height))
		}
	}
	var out bytes.Buffer
	if imageType == job.PNG {
		must(b, png.Encode(&out, large))
	} else {
		must(b, jpeg.Encode(&out, large, &jpeg.Options{Quality: 90}))
	}
	return out.Bytes()
}

type load struct{ transactions, logged float64 }

func bookkeeping(b *testing.B, database *sql.DB) load {
	b.Helper()
	var l load
	// Statistics reach the view a second late; the call forces this session's
	// own, and the few of the others that are missing fall into both readings.
	must(b, database.QueryRowContext(b.Context(), `
		select xact_commit + xact_rollback, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')
		from pg_stat_database where datname = current_database()`).Scan(&l.transactions, &l.logged))
	return l
}
