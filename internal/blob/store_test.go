package blob_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/blob"
)

func TestStore_in_a_folder(t *testing.T) {
	t.Parallel()
	conforms(t, func(t *testing.T) *blob.Store { return open(t, "file://"+t.TempDir()+"/blobs") })
}

func TestStore_in_memory(t *testing.T) {
	t.Parallel()
	conforms(t, func(t *testing.T) *blob.Store { return open(t, "mem://") })
}

// conforms holds a kind of store to what the stages rely on.
func conforms(t *testing.T, newStore func(*testing.T) *blob.Store) {
	t.Run("gives back what was put", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		before := time.Now().Add(-2 * time.Second)
		for _, size := range []int{0, 1, 511, 512, 513, 3 << 20} {
			want := picture(size)
			key := fmt.Sprintf("in/%d", size)
			put(t, s, key, want)
			object := mustOpen(t, s, key)
			if diff := cmp.Diff(int64(size), object.Size); diff != "" {
				t.Error(diff)
			}
			if object.ModTime.Before(before) || object.ModTime.After(time.Now().Add(2*time.Second)) {
				t.Errorf("modified at %s, want now", object.ModTime)
			}
			if !strings.HasPrefix(object.ETag, `"`) || !strings.HasSuffix(object.ETag, `"`) || len(object.ETag) < 3 {
				t.Errorf("ETag %s is not a strong HTTP entity tag", object.ETag)
			}
			if size >= 512 && object.ContentType != "image/png" {
				t.Errorf("type %s, want image/png", object.ContentType)
			}
			if got := readAll(t, object); !bytes.Equal(want, got) {
				t.Errorf("%d bytes came back changed", size)
			}
		}
	})

	t.Run("keeps an object larger than one request", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		want := picture(20<<20 + 1)
		put(t, s, "out/job/1", want)
		object := mustOpen(t, s, "out/job/1")
		if !strings.HasPrefix(object.ETag, `"`) || !strings.HasSuffix(object.ETag, `"`) || object.Size != int64(len(want)) {
			t.Errorf("ETag %s of %d bytes", object.ETag, object.Size)
		}
		if got := readAll(t, object); !bytes.Equal(want, got) {
			t.Errorf("%d bytes came back changed", len(want))
		}
	})

	t.Run("replaces an object whole, and says so by the ETag", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		put(t, s, "out/job/1", picture(9000))
		first := mustOpen(t, s, "out/job/1").ETag
		put(t, s, "out/job/1", picture(700))
		object := mustOpen(t, s, "out/job/1")
		if got := readAll(t, object); !bytes.Equal(picture(700), got) {
			t.Errorf("%d bytes, want the 700 of the second put", len(got))
		}
		if object.ETag == first {
			t.Errorf("both objects have the ETag %s", first)
		}
		if diff := cmp.Diff([]string{"out/job/1"}, keys(t, s, "")); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("reads any part in any order", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		want := picture(200_000)
		put(t, s, "out/job/1", want)
		object := mustOpen(t, s, "out/job/1")
		random := rand.New(rand.NewPCG(1, 2))
		for range 200 {
			from := random.Int64N(int64(len(want)))
			length := random.IntN(5000)
			if _, err := object.Seek(from, io.SeekStart); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(io.LimitReader(object, int64(length)))
			if err != nil {
				t.Fatal(err)
			}
			if end := min(int(from)+length, len(want)); !bytes.Equal(want[from:end], got) {
				t.Fatalf("bytes %d to %d came back changed", from, end)
			}
		}
		if end, err := object.Seek(0, io.SeekEnd); err != nil || end != int64(len(want)) {
			t.Errorf("the end is at %d, %v; want %d", end, err, len(want))
		}
	})

	t.Run("serves HTTP ranges and conditional requests", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		want := picture(10_000)
		put(t, s, "out/job/1", want)
		for _, row := range []struct {
			header func(etag string) http.Header
			status int
			body   []byte
		}{
			{func(string) http.Header { return nil }, 200, want},
			{func(string) http.Header { return http.Header{"Range": {"bytes=9990-"}} }, 206, want[9990:]},
			{func(etag string) http.Header { return http.Header{"If-None-Match": {etag}} }, 304, nil},
		} {
			object := mustOpen(t, s, "out/job/1")
			r := httptest.NewRequest("GET", "/", nil)
			for name, value := range row.header(object.ETag) {
				r.Header[name] = value
			}
			w := httptest.NewRecorder()
			w.Header().Set("ETag", object.ETag)
			http.ServeContent(w, r, "", object.ModTime, object)
			if w.Code != row.status || !bytes.Equal(row.body, w.Body.Bytes()) {
				t.Errorf("%v gave %d with %d bytes, want %d with %d", r.Header, w.Code, w.Body.Len(), row.status, len(row.body))
			}
		}
	})

	t.Run("says that an object is missing", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		absent(t, s, "in/nothing")
		put(t, s, "out/job/1", []byte("x"))
		absent(t, s, "out/job/2")
		absent(t, s, "out/job")
	})

	t.Run("deletes, also what is not there", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		put(t, s, "out/job/1", []byte("1"))
		put(t, s, "out/job/2", []byte("2"))
		for range 2 {
			if err := s.Delete(t.Context(), "out/job/1"); err != nil {
				t.Fatal(err)
			}
		}
		absent(t, s, "out/job/1")
		if got := string(readAll(t, mustOpen(t, s, "out/job/2"))); got != "2" {
			t.Errorf("the other object holds %q", got)
		}
	})

	t.Run("leaves nothing of a put whose reader fails", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		broken := errors.New("the client went away")
		err := s.Put(t.Context(), "in/a", "image/png", io.MultiReader(bytes.NewReader(picture(5<<20)), failing{broken}))
		if !errors.Is(err, broken) {
			t.Fatalf("Put gave %v, want the reader's error", err)
		}
		absent(t, s, "in/a")
		if diff := cmp.Diff([]string(nil), keys(t, s, "")); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("leaves nothing of a put that is cancelled", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		ctx, cancel := context.WithCancel(t.Context())
		err := s.Put(ctx, "in/a", "image/png", io.MultiReader(bytes.NewReader(picture(5<<20)), onRead(cancel), bytes.NewReader(picture(5<<20))))
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("Put gave %v, want that it was cancelled", err)
		}
		absent(t, s, "in/a")
	})

	t.Run("leaves nothing of a put that is cancelled at its last byte", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		ctx, cancel := context.WithCancel(t.Context())
		if err := s.Put(ctx, "in/a", "image/png", io.MultiReader(bytes.NewReader(picture(10)), onRead(cancel))); !errors.Is(err, context.Canceled) {
			t.Fatalf("Put gave %v, want that it was cancelled", err)
		}
		absent(t, s, "in/a")
	})

	t.Run("shows nothing before a put has ended", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		looked := false
		look := onRead(func() {
			looked = true
			absent(t, s, "out/job/1")
			if diff := cmp.Diff([]string(nil), keys(t, s, "out/")); diff != "" {
				t.Error(diff)
			}
		})
		if err := s.Put(t.Context(), "out/job/1", "image/png", io.MultiReader(bytes.NewReader(picture(3<<20)), look, strings.NewReader("end"))); err != nil {
			t.Fatal(err)
		}
		if !looked {
			t.Error("the test did not look")
		}
		mustOpen(t, s, "out/job/1")
	})

	t.Run("lists by prefix, and lets the listed be deleted", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		var want []string
		for i := range 30 {
			put(t, s, fmt.Sprintf("in/%02d", i), []byte("in"))
			key := fmt.Sprintf("out/job%02d/1", i)
			put(t, s, key, []byte("out"))
			want = append(want, key)
		}
		var got []string
		err := s.List(t.Context(), "out/", func(key string, modTime time.Time, size int64) error {
			got = append(got, key)
			if size != 3 || time.Since(modTime) > time.Minute {
				t.Errorf("%s is listed with %d bytes of %s", key, size, modTime)
			}
			return s.Delete(t.Context(), key)
		})
		if err != nil {
			t.Fatal(err)
		}
		sort.Strings(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if left := keys(t, s, ""); len(left) != 30 {
			t.Errorf("%d objects are left, want the 30 of in/", len(left))
		}
		if diff := cmp.Diff(10, len(keys(t, s, "in/1"))); diff != "" {
			t.Error(diff)
		}
		if got := keys(t, s, "nowhere/"); got != nil {
			t.Errorf("listed %v under a prefix that has nothing", got)
		}
	})

	t.Run("lists more than the thousand that stores give at a time", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		want := make([]string, 1001)
		var wg sync.WaitGroup
		for part := range 8 {
			wg.Go(func() {
				for i := part; i < len(want); i += 8 {
					want[i] = fmt.Sprintf("in/%04d", i)
					if err := s.Put(t.Context(), want[i], "image/png", strings.NewReader("x")); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		got := keys(t, s, "in/")
		sort.Strings(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("ends a listing with the caller's error", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		put(t, s, "in/a", []byte("a"))
		put(t, s, "in/b", []byte("b"))
		enough, calls := errors.New("enough"), 0
		err := s.List(t.Context(), "", func(string, time.Time, int64) error { calls++; return enough })
		if !errors.Is(err, enough) || calls != 1 {
			t.Errorf("%d calls and %v, want one and the caller's error", calls, err)
		}
	})

	t.Run("stands claims of one job that write and delete at once", func(t *testing.T) {
		t.Parallel()
		// The directory out/<job> comes and goes with its objects; a Put that
		// met its removal failed with "no such file or directory".
		s := newStore(t)
		var wg sync.WaitGroup
		for worker := range 4 {
			wg.Go(func() {
				for i := range 25 {
					key := fmt.Sprintf("out/job/%d", worker*100+i)
					if err := s.Put(t.Context(), key, "image/png", strings.NewReader(key)); err != nil {
						t.Error(err)
						return
					}
					if err := s.Delete(t.Context(), key); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if left := keys(t, s, ""); left != nil {
			t.Errorf("left: %v", left)
		}
	})

	t.Run("refuses keys that would leave it", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		for _, key := range []string{"", "/", "/etc/passwd", "../x", "in/../../x", "in/", "in//x", "in/.", "in/..", "in/.x", "in/a b", "in/é", "in/a\x00", "in/x.tmp", "in/x.attrs", `in\x`, strings.Repeat("k", 513)} {
			if err := s.Put(t.Context(), key, "image/png", strings.NewReader("x")); err == nil {
				t.Errorf("Put took the key %q", key)
			}
			if object, err := s.Open(t.Context(), key); err == nil {
				_ = object.Close()
				t.Errorf("Open took the key %q", key)
			}
			if err := s.Delete(t.Context(), key); err == nil {
				t.Errorf("Delete took the key %q", key)
			}
		}
	})

	t.Run("checks itself and leaves nothing", func(t *testing.T) {
		t.Parallel()
		s := newStore(t)
		if err := s.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := keys(t, s, ""); left != nil {
			t.Errorf("left: %v", left)
		}
	})
}

func TestOpen_refuses(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"ftp://host/x":         "want file:///folder",
		"/var/lib/pictor":      "want file:///folder",
		"":                     "want file:///folder",
		"file://data/blobs":    "file:///data/blobs",
		"file:///x?metdata=no": "metdata",
		"://":                  "no URL",
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
		})
	}
}

func open(t *testing.T, url string) *blob.Store {
	t.Helper()
	s, err := blob.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func put(t *testing.T, s *blob.Store, key string, b []byte) {
	t.Helper()
	if err := s.Put(t.Context(), key, "image/png", bytes.NewReader(b)); err != nil {
		t.Fatal(err)
	}
}

func mustOpen(t *testing.T, s *blob.Store, key string) *blob.Object {
	t.Helper()
	object, err := s.Open(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = object.Close() })
	return object
}

func readAll(t *testing.T, r io.Reader) []byte {
	t.Helper()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func absent(t *testing.T, s *blob.Store, key string) {
	t.Helper()
	object, err := s.Open(t.Context(), key)
	if err == nil {
		_ = object.Close()
	}
	if !errors.Is(err, blob.ErrNotFound) {
		t.Errorf("Open(%s) gave %v, want ErrNotFound", key, err)
	}
}

func keys(t *testing.T, s *blob.Store, prefix string) (keys []string) {
	t.Helper()
	err := s.List(t.Context(), prefix, func(key string, _ time.Time, _ int64) error {
		keys = append(keys, key)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// picture is size bytes that begin as a PNG does.
func picture(size int) []byte {
	b := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(size)})
	_, _ = random.Read(b)
	copy(b, "\x89PNG\r\n\x1a\n")
	return b
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// onRead calls a func when it is read, and has no bytes.
type onRead func()

func (f onRead) Read([]byte) (int, error) { f(); return 0, io.EOF }
