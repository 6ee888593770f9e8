package e2e_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"pictor/internal/apikey"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

var waiters = flag.Int("waiters", 10_000, "requests that BenchmarkWaiters holds at a time; each takes a descriptor here and in the program")

// BenchmarkWaiters has one `pictor serve` hold thousands of long polls, each on
// a connection of its own and for a job of its own, and measures what a waiter
// takes and how soon it is answered once its job is final:
//
//	go test ./internal/e2e -run '^$' -bench Waiters -benchtime 1x
//
// kB/waiter is the growth of the process in memory, at its most; heap and stack
// are what the Go runtime says of it. The aim is 20 kB. A wake-up is timed from
// the announcement of the worker to the whole answer at the client, so it holds
// the way through NATS, the look at the row and HTTP. The aim is 5 ms in 99 of
// 100 cases on a quiet machine.
func BenchmarkWaiters(b *testing.B) {
	const wakeups = 1000
	s := newStack(b)
	serve := s.run(b, "serve", "PICTOR_STUCK_AFTER=1h")
	until(b, "it is up", func() bool { return serve.metric(b, "go_goroutines") > 0 })
	jobs := s.running(b, *waiters)
	serve.hold(b, jobs, func(r *running, wait int) {
		r.send(b, serve, "GET", fmt.Sprintf("/jobs/%s?wait=%d", r.job.ID, wait), nil)
	})

	took := make([]time.Duration, 0, wakeups)
	for _, r := range jobs[:wakeups] {
		r.complete(b, s.db)
		announced := time.Now()
		must(b, s.queue.Finished(r.job.ID))
		r.answer(b)
		took = append(took, time.Since(announced))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")

	rest := jobs[wakeups:]
	each(8, rest, func(r *running) { r.complete(b, s.db) })
	began := time.Now()
	for _, r := range rest {
		must(b, s.queue.Finished(r.job.ID))
	}
	each(16, rest, func(r *running) { r.answer(b) })
	b.ReportMetric(time.Since(began).Seconds(), "s-all-at-once")
}

// hold has the process hold one request of each client, and reports what that
// takes. ask sends a request that waits so many seconds.
func (p *process) hold(b *testing.B, clients []*running, ask func(r *running, wait int)) {
	b.Helper()
	// What the process takes once for all of them is in place before.
	for _, r := range clients[:100] {
		ask(r, 0)
		r.answer(b)
	}
	memory := func() [3]float64 {
		return [3]float64{memory(b, p, "VmRSS"), p.metric(b, "go_memstats_heap_inuse_bytes"), p.metric(b, "go_memstats_stack_inuse_bytes")}
	}
	before, began := memory(), time.Now()
	// Those that are on their way cost more than those that wait, so they come
	// some at a time.
	parked := 0
	for some := range slices.Chunk(clients, 250) {
		each(16, some, func(r *running) { ask(r, 60) })
		parked += len(some)
		until(b, "all wait", func() bool { return int(p.metric(b, "pictor_waiting_requests")) == parked })
	}
	b.ReportMetric(time.Since(began).Seconds(), "s-to-park")
	var most [3]float64
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for range 4 * 12 { // two looks for everybody
		<-tick.C
		for i, v := range memory() {
			most[i] = max(most[i], (v-before[i])/float64(len(clients))/1000)
		}
	}
	b.ReportMetric(most[0], "kB/waiter")
	b.ReportMetric(most[1], "heap-kB/waiter")
	b.ReportMetric(most[2], "stack-kB/waiter")
	b.ReportMetric(0, "ns/op")
}

// running is a job that a worker has, and a client that waits for it.
type running struct {
	job  job.Job
	key  apikey.Key
	conn net.Conn
}

// running makes jobs in progress, five of each account.
func (s *stack) running(b *testing.B, n int) []*running {
	b.Helper()
	jobs := make([]*running, n)
	for i := 0; i < n; i += job.MaxRunning {
		a := pgtest.NewAccount(b, s.db, point.Point)
		key := pgtest.NewKey(b, s.db, a.ID)
		for k := i; k < min(n, i+job.MaxRunning); k++ {
			jobs[k] = &running{key: key, job: job.Job{Account: a.ID}}
		}
	}
	each(8, jobs, func(r *running) {
		admitted, err := s.db.Admit(b.Context(), pgtest.Admission(b, r.job.Account))
		must(b, err)
		var verdict postgres.Verdict
		r.job, verdict, err = s.db.Claim(b.Context(), admitted.Job.ID, time.Hour)
		must(b, err)
		if verdict != postgres.Claimed {
			b.Errorf("claim: %s", verdict)
		}
	})
	return jobs
}

// send sends a request on the connection of the client.
func (r *running) send(b *testing.B, p *process, method, path string, body []byte) {
	u, err := url.Parse(p.baseURL)
	must(b, err)
	if r.conn == nil {
		r.conn, err = net.Dial("tcp", u.Host)
		must(b, err)
		b.Cleanup(func() { _ = r.conn.Close() })
	}
	_, err = fmt.Fprintf(r.conn, "%s %s%s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s",
		method, u.Path, path, u.Host, r.key, job.PNG, len(body), body)
	must(b, err)
}

// answer reads the whole answer.
func (r *running) answer(b *testing.B) {
	response, err := http.ReadResponse(bufio.NewReaderSize(r.conn, 1024), nil)
	must(b, err)
	var body struct{ Status job.State }
	must(b, json.NewDecoder(response.Body).Decode(&body))
	_, err = io.Copy(io.Discard, response.Body)
	must(b, err)
	if response.StatusCode != http.StatusOK {
		b.Errorf("status %s", response.Status)
	}
}

func (r *running) complete(b *testing.B, db *postgres.DB) {
	held, err := db.Complete(context.WithoutCancel(b.Context()), r.job.ID, r.job.Fence, postgres.Result{Type: job.PNG, Size: 1, Token: string(r.job.ID)})
	must(b, err)
	if !held {
		b.Errorf("job %s was lost", r.job.ID)
	}
}

// memory is what the kernel says of the process: VmRSS is what it has in memory,
// VmHWM the most that it has had. In bytes.
func memory(b *testing.B, p *process, which string) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	must(b, err)
	_, rest, _ := strings.Cut(string(status), which+":")
	kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	must(b, err)
	return float64(kilobytes << 10)
}

// each does something for all, some at a time.
func each[T any](at int, all []T, do func(T)) {
	next := make(chan T)
	var running sync.WaitGroup
	for range at {
		running.Go(func() {
			for v := range next {
				do(v)
			}
		})
	}
	for _, v := range all {
		next <- v
	}
	close(next)
	running.Wait()
}
