package httpapi_test

import (
	"bytes"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/httpapi"
	"pictor/internal/job"
)

func TestResult_is_sent_whole_in_parts_or_not_at_all(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	id := s.create(key)
	image := photo(t, "astronaut.jpg")
	s.complete(id, job.JPEG, image)
	path := "/jobs/" + string(id) + "/result"

	whole := s.do(get(key, path))
	whole.want(http.StatusOK)
	if !bytes.Equal(image, whole.body) {
		t.Error("other bytes came back")
	}
	etag, modified := whole.header.Get("ETag"), whole.header.Get("Last-Modified")
	for name, want := range map[string]string{"Content-Type": "image/jpeg", "Accept-Ranges": "bytes", "Content-Disposition": "", "Cache-Control": "private, no-cache"} {
		if diff := cmp.Diff(want, whole.header.Get(name)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}

	head := s.do(request{method: http.MethodHead, path: path, header: []string{"X-Api-Key: " + key}})
	head.want(http.StatusOK)
	if diff := cmp.Diff(whole.header.Get("Content-Length"), head.header.Get("Content-Length")); diff != "" || len(head.body) != 0 {
		t.Error(diff)
	}

	size := len(image)
	for _, row := range []struct {
		name   string
		header string
		status int
		body   []byte
	}{
		{"first bytes", "Range: bytes=0-9", 206, image[:10]},
		{"last bytes", "Range: bytes=-5", 206, image[size-5:]},
		{"from the middle", "Range: bytes=100-", 206, image[100:]},
		{"several ranges", "Range: bytes=0-1,5-6", 200, image},
		{"another unit", "Range: lines=0-1", 200, image},
		{"behind the end", "Range: bytes=99999999-", 416, nil},
		{"the same version", "If-None-Match: " + etag, 304, nil},
		{"any version", "If-None-Match: *", 304, nil},
		{"another version", `If-None-Match: "x"`, 200, image},
		{"not modified", "If-Modified-Since: " + modified, 304, nil},
		{"another version is demanded", `If-Match: "x"`, 412, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := s.in(t).do(get(key, path, row.header))
			r.want(row.status)
			switch {
			case row.status >= 400:
				r.refused(row.status, "invalid_request")
			case !bytes.Equal(row.body, r.body):
				t.Errorf("got %d bytes, want %d", len(r.body), len(row.body))
			}
			if row.status == http.StatusRequestedRangeNotSatisfiable && row.name == "behind the end" && r.header.Get("Content-Range") == "" {
				t.Error("a client cannot see how long the result is")
			}
		})
	}
}

func TestResult_downloads_as_a_file_with_a_name(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	id := s.create(key)
	s.complete(id, job.WebP, photo(t, "coffee.webp"))
	path := "/jobs/" + string(id) + "/result?download="
	want := `attachment; filename="remove-bg-` + string(id) + `.webp"`
	for value, disposition := range map[string]string{"1": want, "true": want, "0": "", "false": ""} {
		r := s.do(get(key, path+value))
		r.want(http.StatusOK)
		if diff := cmp.Diff(disposition, r.header.Get("Content-Disposition")); diff != "" {
			t.Errorf("download=%s: %s", value, diff)
		}
	}
}

func TestResult_is_gone_when_it_has_expired(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, key := s.account("1")
	id := s.create(key)
	s.complete(id, job.PNG, photo(t, "cup.png"))
	j, err := s.db.JobByToken(t.Context(), "token-of-"+string(id))
	must(t, err)
	must(t, s.store.Delete(t.Context(), j.ResultKey()))
	s.do(get(key, "/jobs/"+string(id)+"/result")).refused(http.StatusNotFound, "not_found")

	aged := startOn(t, s.db, func(c *httpapi.Config) { c.ResultTTL = time.Nanosecond })
	aged.do(get(key, "/jobs/"+string(id)+"/result")).refused(http.StatusNotFound, "not_found")
}
