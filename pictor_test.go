package pictor_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor"
)

func TestNew_refuses_what_is_no_base_URL(t *testing.T) {
	t.Parallel()
	for _, base := range []string{"", "api.example.com", "//api.example.com", "ftp://api.example.com", "http://", "http://[::1", "/api/v1"} {
		if _, err := pictor.New(base, "key"); err == nil {
			t.Errorf("%q was taken", base)
		}
	}
}

func TestNew_adds_the_path_of_the_API_where_there_is_none(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	for _, end := range []string{"", "/", "/api/v1", "/api/v1/"} {
		if _, err := newClient(t, server.URL+end, keyOfStandIn).Me(t.Context()); err != nil {
			t.Errorf("%q: %v", end, err)
		}
	}
}

func TestClient_reads_the_account_and_the_tasks(t *testing.T) {
	t.Parallel()
	client := connect(t, newStandIn().handler())
	me, err := client.Me(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := &pictor.Account{Name: "demo", Balance: 12.5, Lowest: 0.1, Affordable: 125, Prices: map[string]float64{"remove-bg": 0.1, "upscale-2x": 0.1, "upscale-4x": 0.15}}
	if diff := cmp.Diff(want, me); diff != "" {
		t.Error(diff)
	}
	tasks, err := client.Tasks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(pictor.Limits{MaxImageBytes: 20 << 20, MaxImagePixels: 1e8, MaxRunningJobs: 5, MaxKeys: 5, MaxWait: time.Minute, URLTimeout: 15 * time.Second, ResultTTL: 24 * time.Hour}, tasks.Limits); diff != "" {
		t.Error(diff)
	}
	formats := []string{"image/jpeg", "image/png", "image/webp"}
	if diff := cmp.Diff(pictor.Task{ID: "upscale-4x", Name: "Upscale 4x", Scale: 4, Cost: 0.15, InputFormats: formats, OutputFormats: formats, MaxSide: 4096}, tasks.Tasks[1]); diff != "" {
		t.Error(diff)
	}
}

func TestClient_without_a_key_reads_the_tasks_only(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	server := httptest.NewServer(s.handler())
	t.Cleanup(server.Close)
	client := newClient(t, server.URL, "")
	if _, err := client.Tasks(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := client.Me(t.Context()); !errors.Is(err, pictor.ErrUnauthorized) {
		t.Errorf("error %v, want ErrUnauthorized", err)
	}
	if n := len(s.requests()); n != 1 {
		t.Errorf("%d requests were sent, want 1", n)
	}
}

func TestCreate_sends_an_image_from_anywhere(t *testing.T) {
	t.Parallel()
	jpeg := "testdata/images/astronaut.jpg"
	content, err := os.ReadFile(jpeg)
	if err != nil {
		t.Fatal(err)
	}
	gif := []byte("GIF89a, and what follows")
	for _, row := range []struct {
		name  string
		image pictor.Image
		typ   string
		body  []byte
	}{
		{"a file", pictor.File(jpeg), "image/jpeg", content},
		{"bytes", pictor.Bytes(content), "image/jpeg", content},
		{"a reader", pictor.Reader(iotest.OneByteReader(bytes.NewReader(content))), "image/jpeg", content},
		{"a URL", pictor.URL("https://example.com/cat.jpg"), "application/json", []byte(`{"image_url":"https://example.com/cat.jpg"}`)},
		{"what may be no image", pictor.Bytes(gif), "image/png", gif},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := newStandIn()
			client := connect(t, s.handler(), pictor.WithUserAgent("shop/2"))
			if _, err := client.Upscale(t.Context(), row.image, 4, pictor.WithWait(1500*time.Millisecond), pictor.WithIdempotencyKey("order 7")); err != nil {
				t.Fatal(err)
			}
			if _, err := client.RemoveBackground(t.Context(), row.image); err != nil && row.name != "a reader" {
				t.Fatal(err)
			}
			sum := sha256.Sum256(row.body)
			sent := s.requests()[0]
			want := seen{
				Method: "POST", Path: "/api/v1/upscale", Query: "scale=4&wait=2", Length: int64(len(row.body)), Body: hex.EncodeToString(sum[:]), Header: sent.Header,
			}
			if diff := cmp.Diff(want, sent); diff != "" {
				t.Error(diff)
			}
			for name, value := range map[string]string{"Content-Type": row.typ, "Authorization": "Bearer " + keyOfStandIn, "Idempotency-Key": "order 7", "User-Agent": "shop/2", "X-Api-Key": ""} {
				if diff := cmp.Diff(value, sent.Header.Get(name)); diff != "" {
					t.Errorf("%s: %s", name, diff)
				}
			}
			if next := s.requests()[1]; next.Path != "/api/v1/remove-bg" || next.Query != "" || next.Header.Get("Idempotency-Key") == "" {
				t.Errorf("the other call sent %+v", next)
			}
		})
	}
}

func TestCreate_returns_the_job(t *testing.T) {
	t.Parallel()
	job, err := connect(t, newStandIn().handler()).Upscale(t.Context(), pictor.Bytes([]byte("image")), 4)
	if err != nil {
		t.Fatal(err)
	}
	created := time.Date(2026, 1, 31, 2, 30, 0, 0, time.UTC) // 9:30 in Ho Chi Minh City
	want := &pictor.Job{
		ID: job.ID, Task: "upscale-4x", Status: pictor.Completed, Progress: 100, Message: "Done", Cost: 0.15,
		ResultURL:   "https://results.example.com/r/3q2-7wFhQm0cV9xZJt1bYk5dLr8uEaXo.png",
		DownloadURL: "https://api.example.com/api/v1/jobs/" + job.ID + "/result",
		CreatedAt:   created, UpdatedAt: created,
		Billing: &pictor.Billing{Cost: 0.15, Balance: 12.35},
	}
	if diff := cmp.Diff(want, job); diff != "" {
		t.Error(diff)
	}
}

func TestCreate_does_not_send_an_image_that_cannot_be_read(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	client := connect(t, s.handler())
	broken := errors.New("the disk is broken")
	for want, image := range map[error]pictor.Image{
		fs.ErrNotExist: pictor.File(filepath.Join(t.TempDir(), "cat.jpg")),
		broken:         pictor.Reader(io.MultiReader(strings.NewReader("GIF"), iotest.ErrReader(broken))),
	} {
		if _, err := client.RemoveBackground(t.Context(), image); !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	}
	if n := len(s.requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestCreate_without_an_image_leaves_the_refusal_to_the_server(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	client := connect(t, s.handler())
	for _, image := range []pictor.Image{pictor.Bytes(nil), pictor.URL(""), {}} {
		if _, err := client.RemoveBackground(t.Context(), image); err != nil {
			t.Error(err)
		}
	}
	if n := len(s.requests()); n != 3 {
		t.Errorf("%d requests were sent, want 3", n)
	}
}

func TestCreate_with_a_wait_returns_when_the_job_is_final(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	s.took = 150 * time.Second
	inBubble(t, s.handler(), func(t *testing.T, client *pictor.Client) {
		start := time.Now()
		job, err := client.RemoveBackground(t.Context(), pictor.Bytes([]byte("image")), pictor.WithWait(10*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if job.Status != pictor.Completed || job.Billing == nil {
			t.Errorf("the job is %+v", job)
		}
		if took := time.Since(start); took < s.took || took > s.took+time.Second {
			t.Errorf("it took %s, the job %s", took, s.took)
		}
		var asked []string
		for _, r := range s.requests() {
			asked = append(asked, r.Method+" "+r.Query)
		}
		if diff := cmp.Diff([]string{"POST wait=60", "GET wait=60", "GET wait=60"}, asked); diff != "" {
			t.Error(diff)
		}
	})
}

func TestCreate_with_a_wait_returns_the_job_as_it_is_when_the_time_is_over(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	s.took = time.Hour
	inBubble(t, s.handler(), func(t *testing.T, client *pictor.Client) {
		start := time.Now()
		job, err := client.RemoveBackground(t.Context(), pictor.Bytes([]byte("image")), pictor.WithWait(90*time.Second))
		if err != nil || job.Status != pictor.Processing || job.Progress != 50 {
			t.Errorf("%+v, %v", job, err)
		}
		if took := time.Since(start); took != 90*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func TestCreate_returns_the_job_also_when_waiting_for_it_fails(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	s.took = time.Hour
	inBubble(t, s.handler(), func(t *testing.T, client *pictor.Client) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		job, err := client.RemoveBackground(ctx, pictor.Bytes([]byte("image")), pictor.WithWait(time.Hour))
		if !errors.Is(err, context.DeadlineExceeded) || job == nil || job.ID == "" {
			t.Errorf("%+v, %v: the id of a charged job is lost", job, err)
		}
	})
}

func TestWait_asks_until_the_job_is_final(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	s.took = 200 * time.Second
	s.fail = true
	inBubble(t, s.handler(), func(t *testing.T, client *pictor.Client) {
		created, err := client.RemoveBackground(t.Context(), pictor.Bytes([]byte("image")))
		if err != nil || created.Final() || created.Err() != nil {
			t.Fatal(created, err)
		}
		start := time.Now()
		job, err := client.Wait(t.Context(), created.ID)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != s.took {
			t.Errorf("it took %s, the job %s", took, s.took)
		}
		if n := len(s.requests()); n != 1+4 {
			t.Errorf("%d requests", n)
		}
		if !job.Refunded || !errors.Is(job.Err(), pictor.ErrJobFailed) || !strings.Contains(job.Err().Error(), "cut off") {
			t.Errorf("the job is %+v, its error %v", job, job.Err())
		}
	})
}

func TestWait_shows_how_far_the_job_is(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	s.took = 7 * time.Second
	inBubble(t, s.handler(), func(t *testing.T, client *pictor.Client) {
		created, err := client.RemoveBackground(t.Context(), pictor.Bytes([]byte("image")))
		if err != nil {
			t.Fatal(err)
		}
		var progress []int
		if _, err := client.Wait(t.Context(), created.ID, func(j *pictor.Job) { progress = append(progress, j.Progress) }); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]int{50, 50, 50, 100}, progress); diff != "" {
			t.Error(diff)
		}
	})
}

func TestWait_does_not_press_a_server_that_answers_at_once(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	s.took = 30 * time.Second
	// A server that is going down, or an old one, does not hold the answer.
	impatient := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.RawQuery = ""
		s.handler().ServeHTTP(w, r)
	})
	inBubble(t, impatient, func(t *testing.T, client *pictor.Client) {
		created, err := client.RemoveBackground(t.Context(), pictor.Bytes([]byte("image")))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Wait(t.Context(), created.ID); err != nil {
			t.Fatal(err)
		}
		if n := len(s.requests()); n > 32 {
			t.Errorf("%d requests in 30 seconds", n)
		}
	})
}

func TestWait_outlives_a_restart_of_the_server(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	s.took = 100 * time.Second
	down := troubled(s.handler(), s.handler().ServeHTTP, hangUp, proxyPage(502), proxyPage(503), hangUp)
	inBubble(t, down, func(t *testing.T, client *pictor.Client) {
		created, err := client.RemoveBackground(t.Context(), pictor.Bytes([]byte("image")))
		if err != nil {
			t.Fatal(err)
		}
		job, err := client.Wait(t.Context(), created.ID)
		if err != nil || job.Status != pictor.Completed {
			t.Errorf("%+v, %v", job, err)
		}
	})
}

func TestJob_says_that_there_is_none(t *testing.T) {
	t.Parallel()
	s := newStandIn()
	client := connect(t, s.handler())
	for _, id := range []string{"", "nope", "../me", "7b0c1b1e-3c0f-4f0e-9d2a-0a6d3f1f2c11"} {
		if _, err := client.Job(t.Context(), id); !errors.Is(err, pictor.ErrNotFound) {
			t.Errorf("Job(%q): %v", id, err)
		}
		if _, err := client.Wait(t.Context(), id); !errors.Is(err, pictor.ErrNotFound) {
			t.Errorf("Wait(%q): %v", id, err)
		}
		if _, err := client.Download(t.Context(), id, io.Discard); !errors.Is(err, pictor.ErrNotFound) {
			t.Errorf("Download(%q): %v", id, err)
		}
	}
}
