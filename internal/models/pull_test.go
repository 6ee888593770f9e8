package models_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/models"
)

// installed checks that the folder holds the model and nothing else.
func installed(t *testing.T, d models.Description, others ...string) {
	t.Helper()
	if _, err := d.Bytes(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(append([]string{"small.onnx"}, others...), listed(t, d)); diff != "" {
		t.Errorf("the folder: %s", diff)
	}
}

func listed(t *testing.T, d models.Description) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(d.Path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestPull_brings_a_model_and_tells_how_far_it_is(t *testing.T) {
	t.Parallel()
	content := noise(700_000)
	d, p := model(t, content), publish(t, whole(content, `"a"`))
	var last, of int64
	pulled, err := d.Pull(t.Context(), models.Source{URL: p.URL, Progress: func(done, whole int64) {
		if done < last {
			t.Errorf("%d bytes are done after %d", done, last)
		}
		last, of = done, whole
	}})
	if err != nil || !pulled {
		t.Fatal(pulled, err)
	}
	installed(t, d)
	if last != d.Size || of != d.Size {
		t.Errorf("the progress ended at %d of %d, want %d", last, of, d.Size)
	}
	pulled, err = d.Pull(t.Context(), models.Source{URL: p.URL})
	if err != nil || pulled || len(p.ranges()) != 1 {
		t.Errorf("pulled again: %v, %v, %d requests", pulled, err, len(p.ranges()))
	}
}

// Publishers keep large files on other hosts than the URL's.
func TestPull_follows_redirects_with_its_range(t *testing.T) {
	t.Parallel()
	content := noise(100_000)
	d, p := model(t, content), publish(t, cut(whole(content, `"a"`), 40_000))
	front := publish(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, p.URL, http.StatusFound) })
	if _, err := d.Pull(t.Context(), models.Source{URL: front.URL}); err != nil {
		t.Fatal(err)
	}
	installed(t, d)
	if diff := cmp.Diff([]string{"", `bytes=40000- "a"`, `bytes=80000- "a"`}, p.ranges()); diff != "" {
		t.Error(diff)
	}
}

func TestPull_goes_on_when_connections_break_at_any_place(t *testing.T) {
	t.Parallel()
	content := noise(200_000)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		d := model(t, content)
		p := publish(t, nil)
		p.become(func(w http.ResponseWriter, request *http.Request) {
			p.mu.Lock()
			after := 1 + r.IntN(90_000)
			p.mu.Unlock()
			cut(whole(content, `"a"`), after)(w, request)
		})
		if _, err := d.Pull(t.Context(), models.Source{URL: p.URL}); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		installed(t, d)
	}
}

func TestPull_of_another_day_goes_on_from_what_is_there(t *testing.T) {
	t.Parallel()
	content := noise(100_000)
	d, p := model(t, content), publish(t, cut(whole(content, `"a"`), 40_000))
	begun := false
	ctx, cancel := context.WithCancel(t.Context())
	_, err := d.Pull(ctx, models.Source{URL: p.URL, Progress: func(done, _ int64) {
		if begun = done >= 40_000; begun {
			p.become(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
			cancel()
		}
	}})
	if err == nil || !strings.Contains(err.Error(), "40000 bytes") || !strings.Contains(err.Error(), d.Path+".part") || errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want what is kept and where", err)
	}
	if diff := cmp.Diff([]string{"small.onnx.part", "small.onnx.part.from"}, listed(t, d)); diff != "" {
		t.Fatal(diff)
	}
	p.become(whole(content, `"a"`))
	if _, err := d.Pull(t.Context(), models.Source{URL: p.URL}); err != nil {
		t.Fatal(err)
	}
	installed(t, d)
	if got := p.ranges()[len(p.ranges())-1]; got != `bytes=40000- "a"` {
		t.Errorf("it asked for %s", got)
	}
}

// part leaves the first n bytes of an older pull from the URL.
func part(t *testing.T, d models.Description, content []byte, url, tag string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(d.Path), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{d.Path + ".part": content, d.Path + ".part.from": []byte(url + "\n" + tag + "\n")} {
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPull_takes_up_a_part(t *testing.T) {
	t.Parallel()
	content := noise(100_000)
	other := noise(100_001)[:100_000]
	for name, test := range map[string]struct {
		part   []byte
		tag    string
		answer http.HandlerFunc
		asked  []string
	}{
		"of the same version":                       {content[:30_000], `"a"`, whole(content, `"a"`), []string{`bytes=30000- "a"`}},
		"of a version that is gone":                 {other[:30_000], `"old"`, whole(content, `"new"`), []string{`bytes=30000- "old"`}},
		"of a server that tells no version":         {content[:30_000], "", whole(content, ""), []string{"bytes=30000-"}},
		"of a server that knows no ranges":          {content[:30_000], `"a"`, plain(content), []string{`bytes=30000- "a"`}},
		"of other content that nobody noticed":      {other[:30_000], "", whole(content, ""), []string{"bytes=30000-", ""}},
		"that is whole":                             {content, `"a"`, whole(content, `"a"`), nil},
		"that is whole and wrong":                   {other, `"a"`, whole(content, `"a"`), []string{""}},
		"that is longer than the model":             {append(bytes.Clone(content), 1), `"a"`, whole(content, `"a"`), []string{""}},
		"of a server that has become shorter since": {content[:30_000], "", shortFirst(content), []string{"bytes=30000-", ""}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, p := model(t, content), publish(t, test.answer)
			part(t, d, test.part, p.URL, test.tag)
			if _, err := d.Pull(t.Context(), models.Source{URL: p.URL}); err != nil {
				t.Fatal(err)
			}
			installed(t, d)
			if diff := cmp.Diff(test.asked, p.ranges()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// shortFirst answers a request for a range as if the file ended before it.
func shortFirst(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Range") != "" {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		plain(content)(w, r)
	}
}

// The same file has another ETag on a mirror: to ask by the first one's would
// fetch everything again.
func TestPull_goes_on_from_a_mirror(t *testing.T) {
	t.Parallel()
	content := noise(100_000)
	d, p := model(t, content), publish(t, whole(content, `"of the mirror"`))
	part(t, d, content[:60_000], "https://example.com/small.onnx", `"of the publisher"`)
	if _, err := d.Pull(t.Context(), models.Source{URL: p.URL}); err != nil {
		t.Fatal(err)
	}
	installed(t, d)
	if diff := cmp.Diff([]string{"bytes=60000-"}, p.ranges()); diff != "" {
		t.Error(diff)
	}
}

func TestPull_refuses_another_file(t *testing.T) {
	t.Parallel()
	content := noise(50_000)
	same := noise(50_001)[:50_000]
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		change func(*models.Description)
		want   string
	}{
		"of the same length":              {plain(same), nil, "SHA-256"},
		"of another length":               {plain(noise(40_000)), nil, "40000 bytes"},
		"of no stated and more length":    {chunks(noise(50_001)), nil, "it is another file"},
		"of no stated and another length": {chunks(noise(60_000)), nil, "it is another file"},
		"with the publisher's MD5 alone": {plain(content), func(d *models.Description) { d.SHA256 = strings.Repeat("0", 64) },
			"the catalogue may be wrong"},
		"with the SHA-256 alone": {plain(content), func(d *models.Description) { d.MD5 = strings.Repeat("0", 32) }, "MD5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, p := model(t, content), publish(t, test.answer)
			if test.change != nil {
				test.change(&d)
			}
			_, err := d.Pull(t.Context(), models.Source{URL: p.URL})
			if _, ok := errors.AsType[*models.WrongFileError](err); !ok || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if d.Installed() {
				t.Error("the file was put into its place")
			}
			if names := listed(t, d); len(names) > 0 {
				t.Errorf("left behind: %v", names)
			}
		})
	}
}

// chunks serves content without telling its length.
func chunks(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(content)
	}
}

func TestPull_says_what_to_do(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(nil)
	closed.Close()
	status := func(code int) string {
		return publish(t, func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(code) }).URL
	}
	for name, test := range map[string]struct{ url, want string }{
		"gone":          {status(404), "404 Not Found: the file is not there any more; name a mirror by --url"},
		"down":          {status(503), "try again later"},
		"forbidden":     {status(403), "403 Forbidden"},
		"not listening": {closed.URL, "HTTPS_PROXY"},
		"a folder":      {"/some/where", "no http(s) URL"},
		"wrong range": {publish(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Range", "bytes 5-9/10")
			w.WriteHeader(http.StatusPartialContent)
		}).URL, "range"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := model(t, noise(10))
			_, err := d.Pull(t.Context(), models.Source{URL: test.url})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			if names := listed(t, d); len(names) > 0 {
				t.Errorf("left behind: %v", names)
			}
		})
	}
}

func TestPull_keeps_passwords_out_of_errors_and_files(t *testing.T) {
	t.Parallel()
	content := noise(1000)
	d, p := model(t, content), publish(t, cut(plain(content), 500))
	url := strings.Replace(p.URL, "http://", "http://user:secret@", 1)
	_, err := d.Pull(t.Context(), models.Source{URL: url})
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
	b, err := os.ReadFile(d.Path + ".part.from")
	if err != nil || strings.Contains(string(b), "secret") {
		t.Errorf("%s %v", b, err)
	}
}

func TestPull_gives_up_a_connection_that_brings_nothing(t *testing.T) {
	t.Parallel()
	content, over := noise(1000), make(chan struct{})
	d, p := model(t, content), publish(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_ = http.NewResponseController(w).Flush()
		select { // the headers are all that comes
		case <-r.Context().Done():
		case <-over:
		}
	})
	defer close(over)
	_, err := d.Pull(t.Context(), models.Source{URL: p.URL, Stall: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "nothing came") {
		t.Errorf("got %v, want that nothing came", err)
	}
}

func TestPull_leaves_a_download_to_the_process_that_began_it(t *testing.T) {
	t.Parallel()
	content := noise(1000)
	begun, goOn := make(chan struct{}), make(chan struct{})
	d, p := model(t, content), publish(t, func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-goOn
		plain(content)(w, r)
	})
	first := make(chan error, 1)
	go func() {
		_, err := d.Pull(t.Context(), models.Source{URL: p.URL})
		first <- err
	}()
	<-begun
	_, err := d.Pull(t.Context(), models.Source{URL: p.URL})
	if err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("got %v, want that another process downloads", err)
	}
	close(goOn)
	if err := <-first; err != nil {
		t.Error(err)
	}
	installed(t, d)
}

func TestPull_takes_another_export_on_the_operators_word(t *testing.T) {
	t.Parallel()
	catalogue, export := noise(1000), noise(2000)
	d, p := model(t, catalogue), publish(t, plain(export))
	sum := sha256.Sum256(export)
	if _, err := d.Pull(t.Context(), models.Source{URL: p.URL, SHA256: strings.ToUpper(hex.EncodeToString(sum[:]))}); err != nil {
		t.Fatal(err)
	}
	installed(t, d, "small.onnx.sha256")
	if got, err := d.Bytes(); err != nil || !bytes.Equal(got, export) || !d.Own() {
		t.Errorf("%d bytes, own %v, %v", len(got), d.Own(), err)
	}
	p.become(plain(catalogue))
	if _, err := d.Pull(t.Context(), models.Source{URL: p.URL}); err != nil {
		t.Fatal(err)
	}
	installed(t, d)
	if _, err := d.Pull(t.Context(), models.Source{SHA256: "abc"}); err == nil || !strings.Contains(err.Error(), "no SHA-256") {
		t.Errorf("got %v", err)
	}
}

func TestPull_refuses_a_shipped_model(t *testing.T) {
	t.Parallel()
	if _, err := models.Shipped()[0].Pull(t.Context(), models.Source{}); err == nil || !strings.Contains(err.Error(), "inside the binary") {
		t.Errorf("got %v", err)
	}
}

// A server that sends nothing but a status line and then garbage.
func TestPull_survives_what_is_no_HTTP(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "220 mail.example ESMTP\r\n")
			c.Close()
		}
	}()
	d := model(t, noise(10))
	if _, err := d.Pull(t.Context(), models.Source{URL: "http://" + l.Addr().String()}); err == nil {
		t.Error("want an error")
	}
}
