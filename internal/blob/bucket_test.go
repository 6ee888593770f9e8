package blob_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"pictor/internal/blob"
)

// given is the URL of a bucket that is held to the same rules, such as an
// operator's own: go test ./internal/blob -run given -args -store gs://bucket.
var given = flag.String("store", "", "bucket to run the suite of the stores on, each case under a prefix of its own")

// forgetClouds keeps the tests from this machine's own accounts. The servers
// here take any key.
func forgetClouds() {
	for name, value := range map[string]string{
		"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_PROFILE": "", "AWS_REGION": "", "AWS_DEFAULT_REGION": "",
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
		"AZURE_STORAGE_ACCOUNT": "account", "AZURE_STORAGE_KEY": "a2V5", "AZURE_STORAGE_SAS_TOKEN": "",
		"STORAGE_EMULATOR_HOST": "127.0.0.1:1",
	} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}

func TestStore_in_a_given_bucket(t *testing.T) {
	t.Parallel()
	if *given == "" {
		return // only an operator has one
	}
	conforms(t, func(t *testing.T) *blob.Store {
		s := open(t, below(t, *given, uuid.NewString()+"/"))
		t.Cleanup(func() { empty(t, s) }) // it is somebody's, and costs money
		return s
	})
}

// empty deletes everything.
func empty(t *testing.T, s *blob.Store) {
	t.Helper()
	ctx := context.Background() // that of the test has ended
	err := s.List(ctx, "", func(key string, _ time.Time, _ int64) error { return s.Delete(ctx, key) })
	if err != nil {
		t.Errorf("objects are left: %v", err)
	}
}

func TestStore_on_an_S3_server(t *testing.T) {
	t.Parallel()
	conforms(t, func(t *testing.T) *blob.Store { return open(t, s3Server(t)) })
}

func TestStore_under_a_prefix_of_a_bucket(t *testing.T) {
	t.Parallel()
	bucket := s3Server(t)
	conforms(t, func(t *testing.T) *blob.Store { return open(t, below(t, bucket, uuid.NewString()+"/")) })
}

// s3Server is the URL of an empty bucket on an S3 server of the test's own.
func s3Server(t *testing.T) string {
	t.Helper()
	return s3ServerSeen(t, func(*http.Request) {})
}

// s3ServerSeen tells of every request, too.
func s3ServerSeen(t *testing.T, seen func(*http.Request)) string {
	t.Helper()
	backend := s3mem.New()
	if err := backend.CreateBucket("pictor"); err != nil {
		t.Fatal(err)
	}
	handler := gofakes3.New(backend, gofakes3.WithLogger(gofakes3.DiscardLog())).Server()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen(r)
		handler.ServeHTTP(w, r)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	return "s3://pictor?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(server.URL)
}

func below(t *testing.T, bucket, prefix string) string {
	t.Helper()
	u, err := url.Parse(bucket)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("prefix", q.Get("prefix")+prefix)
	u.RawQuery = q.Encode()
	return u.String()
}

func TestBucket_is_refused_before_it_is_used(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"s3://":                                "want s3://bucket",
		"s3://bucket":                          "no region",
		"s3://bucket?region=eu-west-1&pth=x":   `unknown query parameter "pth"`,
		"s3://key:secret@bucket?region=eu":     "no place in the URL",
		"s3://bucket?use_path_style=perhaps":   "use_path_style",
		"azblob://":                            "want azblob://bucket",
		"azblob://container?storage_accont=me": `unknown query parameter "storage_accont"`,
		"gs://bucket?anonimous=true":           `invalid query parameter "anonimous"`,
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			s, err := blob.Open(t.Context(), url)
			if err == nil {
				_ = s.Close()
				t.Fatal("it opened")
			}
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %q does not say %q", err, want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("error %q tells the secret", err)
			}
		})
	}
}

// The driver would print a warning on stdout, where --json promises one
// document and nothing else, and go on to a bucket that refuses everything.
func TestBucket_of_Google_needs_credentials(t *testing.T) {
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "missing.json"))
	s, err := blob.Open(t.Context(), "gs://bucket")
	if err == nil {
		_ = s.Close()
		t.Fatal("it opened")
	}
	if !strings.Contains(err.Error(), "missing.json") {
		t.Errorf("error %q does not say which credentials are missing", err)
	}
}

// Parts of a broken upload are no object, but they are stored, and paid for,
// until somebody aborts the upload.
func TestBucket_aborts_a_large_upload_that_breaks(t *testing.T) {
	t.Parallel()
	bucket := s3Server(t)
	s := open(t, bucket)
	large := picture(20 << 20) // more than the driver sends in one request
	broken := errors.New("the worker was stopped")
	ctx, cancel := context.WithCancel(t.Context())
	for name, put := range map[string]func() error{
		"cancelled": func() error {
			return s.Put(ctx, "out/job/1", "image/png", io.MultiReader(bytes.NewReader(large), onRead(cancel), bytes.NewReader(large)))
		},
		"broken": func() error {
			return s.Put(t.Context(), "out/job/2", "image/png", io.MultiReader(bytes.NewReader(large), failing{broken}))
		},
	} {
		if err := put(); !errors.Is(err, context.Canceled) && !errors.Is(err, broken) {
			t.Errorf("%s: the put gave %v", name, err)
		}
	}
	if got := keys(t, s, ""); got != nil {
		t.Errorf("listed %v", got)
	}
	if list := uploads(t, bucket); strings.Contains(list, "out/job") {
		t.Errorf("uploads that nobody ended: %s", list)
	}
}

func TestBucket_ends_the_uploads_of_processes_that_died(t *testing.T) {
	t.Parallel()
	bucket := s3Server(t)
	s := open(t, below(t, bucket, "pictures/"))
	for _, key := range []string{"pictures/out/job/1", "pictures/out/job/2", "backups/of/somebody/else"} {
		answer, err := http.Post(endpoint(t, bucket)+"/pictor/"+key+"?uploads", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := answer.Body.Close(); err != nil || answer.StatusCode != 200 {
			t.Fatalf("begin an upload: %d, %v", answer.StatusCode, err)
		}
	}
	if n, err := s.RemoveHalfWritten(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("ended %d uploads, %v: those may still go on", n, err)
	}
	if n, err := s.RemoveHalfWritten(t.Context(), time.Now().Add(time.Minute)); n != 2 || err != nil {
		t.Errorf("ended %d uploads, %v; want the 2 of this store", n, err)
	}
	if list := uploads(t, bucket); strings.Contains(list, "out/job") || !strings.Contains(list, "backups") {
		t.Errorf("uploads that are left: %s", list)
	}
}

// uploads is what an S3 server says of uploads that were begun and not ended.
func uploads(t *testing.T, bucket string) string {
	t.Helper()
	answer, err := http.Get(endpoint(t, bucket) + "/pictor?uploads")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	list := string(readAll(t, answer.Body))
	if answer.StatusCode != 200 {
		t.Fatalf("status %d: %s", answer.StatusCode, list)
	}
	return list
}

func endpoint(t *testing.T, bucket string) string {
	t.Helper()
	u, err := url.Parse(bucket)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("endpoint")
}

// azureblob's own writer panicked in Close when the server refused a small
// upload: one wrong key, and every worker would have died with its first result.
// gcsblob takes a refusal for a missing object: a Delete that was refused had
// gone well.
func TestBucket_that_refuses_everything_gives_errors(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "no", http.StatusForbidden)
	}))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	t.Setenv("STORAGE_EMULATOR_HOST", host)
	for _, bucket := range []string{
		"s3://pictor?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(server.URL),
		"azblob://pictor?protocol=http&domain=" + host,
		"gs://pictor",
	} {
		s := open(t, bucket)
		for size := range 3 {
			if err := s.Put(t.Context(), "in/a", "image/png", bytes.NewReader(picture(size*1000))); err == nil {
				t.Errorf("%s: put %d bytes", bucket, size*1000)
			}
		}
		if _, err := s.Open(t.Context(), "in/a"); err == nil || errors.Is(err, blob.ErrNotFound) {
			t.Errorf("%s: Open gave %v", bucket, err)
		}
		if err := s.Delete(t.Context(), "in/a"); err == nil {
			t.Errorf("%s: deleted", bucket)
		}
		if err := s.List(t.Context(), "", func(string, time.Time, int64) error { return nil }); err == nil {
			t.Errorf("%s: listed", bucket)
		}
		if err := s.Check(t.Context()); err == nil {
			t.Errorf("%s: checked", bucket)
		}
	}
}

// A request that began when the bucket could be reached ends with the context,
// however long the server takes.
func TestBucket_that_does_not_answer_is_left_when_the_context_ends(t *testing.T) {
	var asked sync.WaitGroup
	asked.Add(1)
	var once sync.Once
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		once.Do(asked.Done)
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	s := open(t, "s3://pictor?region=us-east-1&use_path_style=true&endpoint="+url.QueryEscape(server.URL))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { asked.Wait(); cancel() }()
	if err := s.Put(ctx, "in/a", "image/png", bytes.NewReader(picture(1000))); !errors.Is(err, context.Canceled) {
		t.Errorf("the put gave %v", err)
	}
}

// Behind a CDN most requests ask for headers or a part; each one opened the
// whole object first.
func TestBucket_is_asked_only_for_what_is_read(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var requests []string
	s := open(t, s3ServerSeen(t, func(r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests = append(requests, strings.TrimSpace(r.Method+" "+r.Header.Get("Range")))
	}))
	want := picture(10_000)
	put(t, s, "out/job/1", want)
	object := mustOpen(t, s, "out/job/1")
	for _, from := range []int64{0, 500} {
		if _, err := object.Seek(0, io.SeekEnd); err != nil {
			t.Fatal(err)
		}
		if _, err := object.Seek(from, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, object); !bytes.Equal(want[from:], got) {
			t.Errorf("%d bytes from %d on", len(got), from)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if diff := cmp.Diff([]string{"PUT", "HEAD", "GET", "GET bytes=500-"}, requests); diff != "" {
		t.Error(diff)
	}
}

func TestBucket_signs_URLs_that_everybody_can_read(t *testing.T) {
	t.Parallel()
	s := open(t, s3Server(t))
	want := picture(5000)
	put(t, s, "out/job/1", want)
	signed, err := s.SignedURL(t.Context(), "out/job/1", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(signed)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if got := readAll(t, answer.Body); !bytes.Equal(want, got) || answer.Header.Get("Content-Type") != "image/png" {
		t.Errorf("status %d with %d bytes of %s", answer.StatusCode, len(got), answer.Header.Get("Content-Type"))
	}
	if u, err := url.Parse(signed); err != nil || u.Query().Get("X-Amz-Expires") != "60" || u.Query().Get("X-Amz-Signature") == "" {
		t.Errorf("%s is not signed for a minute: %v", signed, err)
	}
	if signed, err := open(t, "file://"+t.TempDir()).SignedURL(t.Context(), "out/job/1", time.Minute); err == nil {
		t.Errorf("a folder signed %s", signed)
	}
}
