package models_test

import (
	"bytes"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pictor/internal/job"
	"pictor/internal/models"
)

// publisher is a server of one file, and a list of what it was asked for.
type publisher struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []http.Header
	answer http.HandlerFunc
}

func publish(t *testing.T, answer http.HandlerFunc) *publisher {
	t.Helper()
	p := &publisher{answer: answer}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		p.asked = append(p.asked, r.Header)
		answer := p.answer
		p.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *publisher) become(answer http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

// ranges is the Range of each request, and its If-Range.
func (p *publisher) ranges() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, h := range p.asked {
		all = append(all, strings.TrimSpace(h.Get("Range")+" "+h.Get("If-Range")))
	}
	return all
}

// whole serves content as any web server does.
func whole(content []byte, tag string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if tag != "" {
			w.Header().Set("ETag", tag)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}
}

// plain serves content whole, whatever is asked for.
func plain(content []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", strconv.Itoa(len(content)))
		_, _ = w.Write(content)
	}
}

// cut lets a handler send so many bytes and then drops the connection.
func cut(h http.HandlerFunc, after int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h(&cutter{w, after}, r)
	}
}

type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b[:min(len(b), c.left)])
	if c.left -= n; err == nil && n < len(b) {
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// model is a catalogue entry for the content, in a folder of the test's own.
func model(t *testing.T, content []byte) models.Description {
	t.Helper()
	sha, md := sha256.Sum256(content), md5.Sum(content)
	return models.Description{
		Name: "small", Task: job.RemoveBG, File: "small.onnx",
		Path: filepath.Join(t.TempDir(), "models", "small.onnx"),
		URL:  "http://models.invalid/small.onnx",
		Size: int64(len(content)), SHA256: hex.EncodeToString(sha[:]), MD5: hex.EncodeToString(md[:]),
	}
}

func noise(n int) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(1, uint64(n)))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
