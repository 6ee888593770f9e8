package httpapi_test

import (
	"io"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pictor/internal/httpapi"
)

// TestCreate_keeps_the_memory_of_parallel_JSON_bodies_bounded sends bodies that
// would take many times the budget if all were decoded at once. For the peak of
// real uploads: MEMORY_UPLOADS=50 MEMORY_IMAGE=20971520 MEMORY_BUDGET=536870912.
func TestCreate_keeps_the_memory_of_parallel_JSON_bodies_bounded(t *testing.T) {
	uploads, image, budget := setting(t, "MEMORY_UPLOADS", 16), setting(t, "MEMORY_IMAGE", 3<<20), setting(t, "MEMORY_BUDGET", 20<<20)
	s := start(t, func(c *httpapi.Config) { c.JSONMemory = int64(budget) })
	_, key := s.account("1")
	peak := watchMemory(t)

	// Zeros in base64: good base64, and no image.
	send := func(contentType, before, after string, fill byte, n int) {
		body := stream{
			io.MultiReader(strings.NewReader(before), io.LimitReader(repeat(fill), int64(n)), strings.NewReader(after)),
			int64(len(before) + n + len(after)),
		}
		s.doBody(upload(key, "/remove-bg", contentType, nil), body).refused(http.StatusUnprocessableEntity, "invalid_image")
	}
	var all sync.WaitGroup
	for range uploads {
		all.Go(func() { send("application/json", `{"image_base64": "`, `"}`, 'A', image/3*4) })
	}
	all.Wait()
	afterJSON := peak()
	for range uploads {
		all.Go(func() { send("image/png", "", "", 0, image) })
		all.Go(func() {
			send("multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a\"\r\n\r\n", "\r\n--x--\r\n", 0, image)
		})
	}
	all.Wait()
	t.Logf("%d uploads of %d bytes in each way, budget %d MB: peak %d MB with JSON, %d MB with raw bodies and forms",
		uploads, image, budget>>20, afterJSON>>20, peak()>>20)
	// The garbage of bodies that are done, and all else that a process holds,
	// come on top of the bodies that are read.
	if limit := uint64(2*budget + 64<<20); afterJSON > limit {
		t.Errorf("the peak was %d MB, over %d MB", afterJSON>>20, limit>>20)
	}
}

func setting(t *testing.T, name string, value int) int {
	t.Helper()
	if s := os.Getenv(name); s != "" {
		n, err := strconv.Atoi(s)
		must(t, err)
		return n
	}
	return value
}

type repeat byte

func (b repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

// watchMemory samples the heap. The function it returns gives the peak since
// the last call.
func watchMemory(t *testing.T) func() uint64 {
	t.Helper()
	debug.FreeOSMemory()
	var mu sync.Mutex
	var top uint64
	stop := make(chan struct{})
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			mu.Lock()
			top = max(top, m.HeapInuse)
			mu.Unlock()
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	}()
	t.Cleanup(func() { close(stop) })
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		peak := top
		top = 0
		debug.FreeOSMemory()
		return peak
	}
}
