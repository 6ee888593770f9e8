package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"math/rand/v2"
	"mime/multipart"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/testkit/pgtest"
)

// discards makes this binary a server that reads every body and does nothing.
const discards = "PICTOR_E2E_DISCARDS"

func serveDiscarding() {
	on, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(map[string]string{"base_url": "http://" + on.Addr().String()})
	}
	if err == nil {
		err = http.Serve(on, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// runDiscarding starts that server.
func runDiscarding(b *testing.B) *process {
	b.Helper()
	p := &process{command: "discard", exited: make(chan struct{}), cmd: exec.Command(os.Args[0])}
	p.cmd.Env, p.cmd.SysProcAttr = append(os.Environ(), discards+"=1"), endWithParent()
	out, err := p.cmd.StdoutPipe()
	must(b, err)
	must(b, p.cmd.Start())
	b.Cleanup(p.kill)
	go func() {
		defer close(p.exited)
		p.ended = p.cmd.Wait()
	}()
	var where struct {
		BaseURL string `json:"base_url"`
	}
	must(b, json.NewDecoder(out).Decode(&where))
	p.baseURL = where.BaseURL
	return p
}

// BenchmarkRefusals sends pictures of a megabyte to `pictor serve`, for accounts
// that may not have another job, and to a server that reads bodies and does
// nothing else, in turns. It compares the processor time of the two processes:
//
//	go test ./internal/e2e -run '^$' -bench Refusals -benchtime 1x
//
// The aim is a ratio of 1: a refused upload costs no more than reading it.
func BenchmarkRefusals(b *testing.B) {
	s := newStack(b)
	serve, floor := s.run(b, "serve"), runDiscarding(b)
	picture := noise(b)
	formType, form := inForm(b, picture)
	for _, row := range []struct {
		name, contentType string
		balance           point.Amount
		running, status   int
		body              []byte
	}{
		{"429 PNG", job.PNG, point.Point, job.MaxRunning, http.StatusTooManyRequests, picture},
		{"402 PNG", job.PNG, 0, 0, http.StatusPaymentRequired, picture},
		{"429 form", formType, point.Point, job.MaxRunning, http.StatusTooManyRequests, form},
	} {
		b.Run(row.name, func(b *testing.B) {
			const uploads, turns = 400, 5
			account := pgtest.NewAccount(b, s.db, row.balance)
			for range row.running {
				pgtest.Queued(b, s.db, account.ID)
			}
			key := pgtest.NewKey(b, s.db, account.ID)
			send := func(p *process, path string, status int) float64 {
				from := cpuTime(b, p)
				var all sync.WaitGroup
				for range 4 {
					all.Go(func() {
						for range uploads / 4 {
							q, err := http.NewRequest(http.MethodPost, p.baseURL+path, bytes.NewReader(row.body))
							must(b, err)
							q.Header.Set("Authorization", "Bearer "+string(key))
							q.Header.Set("Content-Type", row.contentType)
							answer, err := http.DefaultClient.Do(q)
							if err != nil {
								b.Error(err)
								return
							}
							_, _ = io.Copy(io.Discard, answer.Body)
							_ = answer.Body.Close()
							if answer.StatusCode != status {
								b.Errorf("got %s, want %d", answer.Status, status)
							}
						}
					})
				}
				all.Wait()
				return cpuTime(b, p) - from
			}
			send(serve, "/upscale", row.status) // both are warm
			send(floor, "", http.StatusOK)
			refusing, reading := 0.0, 0.0
			for range turns {
				refusing += send(serve, "/upscale", row.status)
				reading += send(floor, "", http.StatusOK)
			}
			b.ReportMetric(refusing/(uploads*turns)*1e6, "cpu-us/refusal")
			b.ReportMetric(reading/(uploads*turns)*1e6, "cpu-us/read")
			b.ReportMetric(refusing/reading, "ratio")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// noise is a picture of about a megabyte.
func noise(b *testing.B) []byte {
	b.Helper()
	picture := image.NewNRGBA(image.Rect(0, 0, 512, 512))
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(picture.Pix) // it does not fail
	var out bytes.Buffer
	must(b, png.Encode(&out, picture))
	return out.Bytes()
}

// inForm is the picture as a browser sends it.
func inForm(b *testing.B, picture []byte) (contentType string, body []byte) {
	b.Helper()
	var out bytes.Buffer
	form := multipart.NewWriter(&out)
	file, err := form.CreateFormFile("image", "noise.png")
	must(b, err)
	_, err = file.Write(picture)
	must(b, err)
	must(b, form.Close())
	return form.FormDataContentType(), out.Bytes()
}

// cpuTime is the processor time that a process has taken, in seconds.
func cpuTime(b *testing.B, p *process) float64 {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	must(b, err)
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	const ticks = 100 // a second, on every Linux that Go runs on
	seconds := 0.0
	for _, field := range fields[11:13] { // of the program, and of the kernel for it
		n, err := strconv.Atoi(field)
		must(b, err)
		seconds += float64(n) / ticks
	}
	return seconds
}
