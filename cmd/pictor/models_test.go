package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"image/png"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/testkit/onnxfile"
)

func TestModels_list_tells_what_is_there_and_in_use(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "u2netp.onnx"), []byte("whatever"), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"models", "list", "--models-dir", folder, "--upscale-4x-model", "RealESRGAN_x4plus"}
	var out, errs bytes.Buffer
	if code := run(append(args, "--json"), &out, &errs); code != 0 {
		t.Fatal(errs.String())
	}
	state := make(map[any]string)
	for _, row := range document[[]any](t, out.String()) {
		values := fields(t, row, "name", "shipped", "installed", "in_use")
		fields(t, row, "task", "licence", "input_size", "fit", "normalisation", "output", "sha256", "origin")
		if values[1] == false {
			fields(t, row, "url", "size", "path", "witness")
		}
		state[values[0]] = fmt.Sprint(values[1:])
	}
	for name, want := range map[string]string{
		"remove-bg": "[true true true]", "upscale-4x": "[true true false]", "upscale-4x-fast": "[true true false]", "u2netp": "[false true false]",
		"u2net": "[false false false]", "RealESRGAN_x4plus": "[false false true]",
	} {
		if state[name] != want {
			t.Errorf("%s: shipped, installed, in use are %s, want %s", name, state[name], want)
		}
	}
	if len(state) != 18 {
		t.Errorf("%d models are listed, want 18", len(state))
	}

	out.Reset()
	if code := run(args, &out, &errs); code != 0 {
		t.Fatal(errs.String())
	}
	for _, want := range []string{"remove-bg", "shipped, in use", "installed", "letterboxed to 1024", "MIT"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q", want)
		}
	}
	if code := run([]string{"models", "verify", "--models-dir", folder}, io.Discard, &errs); code != 1 {
		t.Error("a file that is no model was found intact")
	}
}

// serveModel serves a file as any web server does.
func serveModel(t *testing.T, file []byte) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"a"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file))
	}))
	t.Cleanup(s.Close)
	return s
}

func sum(file []byte) string { return fmt.Sprintf("%x", sha256.Sum256(file)) }

// From the download to a cut-out: the network has the structure of IS-Net and
// random weights, so what it cuts out is its own affair.
func TestModels_pull_makes_a_model_of_others_work(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	folder := filepath.Join(home, "models")
	in := []string{"--models-dir", folder}

	code, _, stderr := ask(t, home, append([]string{"worker", "--database-url", "postgres://nowhere.invalid/x", "--remove-bg-model", "isnet-general-use"}, in...)...)
	if code != 2 || !strings.Contains(stderr, "PICTOR_REMOVE_BG_MODEL") || !strings.Contains(stderr, "run `pictor models pull isnet-general-use`") || !strings.Contains(stderr, folder) {
		t.Errorf("without the file: %d %s", code, stderr)
	}

	file := onnxfile.ISNet(1024, 16)
	pull := append([]string{"models", "pull", "isnet-general-use", "--url", serveModel(t, file).URL}, in...)
	if code, _, stderr := ask(t, home, pull...); code != 1 || !strings.Contains(stderr, "it is another file") {
		t.Errorf("with the catalogue's checksum: %d %s", code, stderr)
	}
	code, stdout, stderr := ask(t, home, append(pull, "--sha256", sum(file), "--json")...)
	if code != 0 || !strings.Contains(stderr, "isnet-general-use: 100% of") {
		t.Fatalf("%d %s", code, stderr)
	}
	want := map[string]any{"name": "isnet-general-use", "path": filepath.Join(folder, "isnet-general-use.onnx"), "pulled": true}
	if diff := cmp.Diff(want, document[map[string]any](t, stdout)); diff != "" {
		t.Error(diff)
	}
	if code, stdout, stderr := ask(t, home, append([]string{"models", "verify"}, in...)...); code != 0 || !strings.Contains(stdout, "intact, by the checksum beside it") {
		t.Errorf("%d %s%s", code, stdout, stderr)
	}

	data := filepath.Join(home, "data")
	p, info := dev(t, data, append(in, "--remove-bg-model", "isnet-general-use")...)
	id := submit(t, info, "/remove-bg", "rocket.jpg")
	until(t, p, "the job is final", func() bool {
		status := show(t, info, id)["status"]
		return status == "completed" || status == "failed"
	})
	job := show(t, info, id)
	if job["status"] != "completed" {
		t.Fatalf("got %v", job)
	}
	response, err := http.Get(job["result_url"].(string))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := png.Decode(response.Body); err != nil {
		t.Error(err)
	}
	if log := string(p.stderr.bytes()); !strings.Contains(log, `models="isnet-general-use, upscale-2x, upscale-4x"`) {
		t.Errorf("the log does not name the models: %s", log)
	}
	if code, stdout, _ := ask(t, home, "doctor", "--data", data, "--models-dir", folder, "--remove-bg-model", "isnet-general-use"); code != 0 || !strings.Contains(stdout, "by isnet-general-use, upscale-2x, upscale-4x") {
		t.Errorf("the doctor: %d %s", code, stdout)
	}
}

func TestModels_pull_goes_on_after_Ctrl_C(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	folder := filepath.Join(home, "models")
	file := bytes.Repeat([]byte("model"), 200_000)
	half, over := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(len(file)))
		_, _ = w.Write(file[:len(file)/2])
		_ = http.NewResponseController(w).Flush()
		close(half)
		select {
		case <-r.Context().Done():
		case <-over:
		}
	}))
	defer slow.Close()
	defer close(over)
	args := []string{"models", "pull", "u2netp", "--models-dir", folder, "--sha256", sum(file)}
	p := start(t, home, append(args, "--url", slow.URL)...)
	<-half
	part := filepath.Join(folder, "u2netp.onnx.part")
	until(t, p, "half of it is there", func() bool {
		info, err := os.Stat(part)
		return err == nil && info.Size() == int64(len(file)/2)
	})
	if code := p.interrupt(); code != 1 || !strings.Contains(string(p.stderr.bytes()), "500000 bytes of u2netp are kept in "+part) {
		t.Errorf("Ctrl-C: %d %s", code, p.stderr.bytes())
	}

	asked := make(chan string, 9)
	fast := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Range")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file))
	}))
	defer fast.Close()
	if code, stdout, stderr := ask(t, home, append(args, "--url", fast.URL)...); code != 0 || !strings.Contains(stdout, "u2netp is in ") {
		t.Fatalf("%d %s%s", code, stdout, stderr)
	}
	if got := <-asked; got != "bytes=500000-" {
		t.Errorf("it asked for %q", got)
	}
	if code, stdout, _ := ask(t, home, append(args, "--url", fast.URL)...); code != 0 || !strings.Contains(stdout, "already") {
		t.Errorf("a third time: %d %s", code, stdout)
	}
}

func TestModels_pull_goes_through_the_proxy_of_the_environment(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	file := []byte("a model")
	asked := make(chan string, 9)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.URL.String()
		_, _ = w.Write(file)
	}))
	defer proxy.Close()
	p := prepare(t, home, "models", "pull", "u2netp", "--models-dir", filepath.Join(home, "models"), "--sha256", sum(file), "--url", "http://models.invalid/u2netp.onnx")
	p.cmd.Env = append(p.cmd.Env, "HTTP_PROXY="+proxy.URL, "http_proxy="+proxy.URL, "NO_PROXY=", "no_proxy=")
	p.run()
	if code := p.wait(); code != 0 {
		t.Fatalf("%d %s", code, p.stderr.bytes())
	}
	if got := <-asked; got != "http://models.invalid/u2netp.onnx" {
		t.Errorf("the proxy was asked for %s", got)
	}
}

func TestModels_pull_refuses_a_name_that_is_none(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run([]string{"models", "pull", "bria-rmbg", "--models-dir", t.TempDir()}, &out, &errs); code != 2 || !strings.Contains(errs.String(), "models list") {
		t.Errorf("%d %s", code, &errs)
	}
	errs.Reset()
	if code := run([]string{"models", "pull", "remove-bg", "--models-dir", t.TempDir()}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "inside the binary") {
		t.Errorf("%d %s", code, &errs)
	}
}
