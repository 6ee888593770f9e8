package bus_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"pictor/internal/apikey"
	"pictor/internal/bus"
	"pictor/internal/job"
)

const patience = 30 * time.Second

var quiet = slog.New(slog.DiscardHandler)

func start(t *testing.T, dir string, port int) *bus.Server {
	t.Helper()
	s, err := bus.StartServer(dir, port, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func connect(t *testing.T, url string) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(bus.Config{URL: url, Name: t.Name()}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func ensured(t *testing.T) *bus.Bus {
	t.Helper()
	b := connect(t, start(t, t.TempDir(), 0).URL())
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return b
}

// consume runs Consume until the test or the caller stops it, and returns what
// it offers.
func consume(t *testing.T, b *bus.Bus, slots int) (offered <-chan bus.Message, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	messages, done := make(chan bus.Message, 1000), make(chan struct{})
	go func() {
		defer close(done)
		b.Consume(ctx, job.Tasks(), slots, func(m bus.Message) { messages <- m })
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return messages, stop
}

func next(t *testing.T, messages <-chan bus.Message) bus.Message {
	t.Helper()
	select {
	case m := <-messages:
		return m
	case <-time.After(patience):
		t.Fatal("no message arrived")
		return bus.Message{}
	}
}

func publish(t *testing.T, b *bus.Bus, task job.Task, id job.ID, fence int64) {
	t.Helper()
	if err := b.Publish(t.Context(), task, id, fence); err != nil {
		t.Fatal(err)
	}
}

func backlog(t *testing.T, b *bus.Bus) uint64 {
	t.Helper()
	byTask, err := b.Backlog(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var n uint64
	for _, waiting := range byTask {
		n += waiting
	}
	return n
}

// The time of a queue is that of its head, whatever else was published since
// and however long those wait that workers have in hand.
func TestWaited_is_the_age_of_the_message_whose_turn_is_next(t *testing.T) {
	t.Parallel()
	b := ensured(t)
	waited := func(task job.Task) time.Duration {
		t.Helper()
		d, err := b.Waited(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	publish(t, b, job.RemoveBG, "a", 0)
	publish(t, b, job.RemoveBG, "b", 0)
	first := waited(job.RemoveBG)
	began := time.Now()
	publish(t, b, job.RemoveBG, "c", 0)
	for time.Since(began) < 20*time.Millisecond { // so that a and b are told from c
		if d := waited(job.Upscale2x); d != 0 {
			t.Fatalf("nothing waits, and has waited %s", d)
		}
	}
	if d := waited(job.RemoveBG); d < first+10*time.Millisecond {
		t.Errorf("the first has waited %s, and %s before", d, first)
	}

	inHand, release, done := make(chan job.ID), make(chan struct{}), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		b.Consume(ctx, job.Tasks(), 2, func(m bus.Message) { inHand <- m.ID; <-release })
	}()
	<-inHand
	<-inHand
	third := waited(job.RemoveBG)
	if since := time.Since(began); third > since {
		t.Errorf("the third has waited %s, and was published %s ago at most", third, since)
	}
	stop()
	close(release)
	<-done
}

func TestConsume_offers_every_task_s_jobs(t *testing.T) {
	t.Parallel()
	b := ensured(t)
	want := []job.ID{"a", "b", "c"}
	for i, task := range job.Tasks() {
		publish(t, b, task, want[i], 0)
	}
	messages, _ := consume(t, b, 2)
	var got []job.ID
	for range want {
		m := next(t, messages)
		got = append(got, m.ID)
		m.Ack()
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPublish_stores_copies_of_one_attempt_once(t *testing.T) {
	t.Parallel()
	b := ensured(t)
	for range 5 {
		publish(t, b, job.RemoveBG, "a", 0)
	}
	publish(t, b, job.RemoveBG, "a", 1)
	if got := backlog(t, b); got != 2 {
		t.Errorf("%d messages wait, want 2: one for each fence", got)
	}
}

func TestConsume_offers_a_message_again_after_Retry(t *testing.T) {
	t.Parallel()
	b := ensured(t)
	publish(t, b, job.Upscale2x, "a", 0)
	messages, _ := consume(t, b, 1)
	next(t, messages).Retry(0)
	again := next(t, messages)
	if again.ID != "a" {
		t.Errorf("got %q again, want a", again.ID)
	}
	again.Ack()
}

func TestConsume_runs_no_more_than_its_slots(t *testing.T) {
	t.Parallel()
	b := ensured(t)
	const slots, jobs = 2, 12
	for i := range jobs {
		publish(t, b, job.Tasks()[i%3], job.ID(rune('a'+i)), 0)
	}
	var mu sync.Mutex
	running, most, seen := 0, 0, map[job.ID]bool{}
	all := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go b.Consume(ctx, job.Tasks(), slots, func(m bus.Message) {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		m.Alive()
		m.Ack()
		mu.Lock()
		defer mu.Unlock()
		running--
		seen[m.ID] = true
		if len(seen) == jobs {
			close(all)
		}
	})
	select {
	case <-all:
	case <-time.After(patience):
		t.Fatalf("%d of %d jobs were offered", len(seen), jobs)
	}
	mu.Lock()
	defer mu.Unlock()
	if most > slots {
		t.Errorf("%d ran at a time, want at most %d", most, slots)
	}
}

func TestConsume_waits_for_what_runs_when_it_is_stopped(t *testing.T) {
	t.Parallel()
	b := ensured(t)
	publish(t, b, job.RemoveBG, "a", 0)
	ctx, cancel := context.WithCancel(t.Context())
	started, finish, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		b.Consume(ctx, job.Tasks(), 1, func(m bus.Message) {
			close(started)
			<-finish
			m.Ack()
		})
		close(returned)
	}()
	<-started
	cancel()
	select {
	case <-returned:
		t.Fatal("Consume returned while a job was running")
	default:
	}
	close(finish)
	<-returned
}

// A publish that fails must fail for good. With the client's default reconnect
// buffer the message is kept, sent when the server is back, and the worker gets
// a job whose client was told "nothing was charged".
// The doctor and /readyz repeat what Ensure and Backlog say: "nats: outbound
// buffer limit exceeded" told nobody that there is no server.
func TestEnsure_says_that_there_is_no_connection(t *testing.T) {
	t.Parallel()
	b := connect(t, "nats://127.0.0.1:1")
	if err := b.Ensure(t.Context()); err == nil || !strings.Contains(err.Error(), "no connection to NATS") {
		t.Errorf("Ensure: %v", err)
	}
	if _, err := b.Backlog(t.Context()); err == nil || !strings.Contains(err.Error(), "no connection to NATS") {
		t.Errorf("Backlog: %v", err)
	}
}

func TestPublish_leaves_nothing_behind_when_the_server_is_away(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, dir, 0)
	b := connect(t, first.URL())
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Stop()
	for i := range 3 {
		if err := b.Publish(t.Context(), job.RemoveBG, job.ID(rune('a'+i)), 0); err == nil {
			t.Error("publishing to a stopped server succeeded")
		}
	}
	back := make(chan struct{}, 10)
	stop := b.OnReconnect(func() { back <- struct{}{} })
	defer stop()
	start(t, dir, port(t, first.URL()))
	select {
	case <-back:
	case <-time.After(patience):
		t.Fatal("the connection did not come back")
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := backlog(t, b); got != 0 {
		t.Errorf("%d messages were sent although publishing failed", got)
	}
}

func TestConsume_goes_on_after_the_server_restarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, dir, 0)
	b := connect(t, first.URL())
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	publish(t, b, job.RemoveBG, "before", 0)
	messages, _ := consume(t, b, 1)
	next(t, messages).Ack()
	first.Stop()
	second := start(t, dir, port(t, first.URL()))
	publish(t, connect(t, second.URL()), job.RemoveBG, "after", 0)
	for m := next(t, messages); m.ID != "after"; m = next(t, messages) {
		m.Ack() // the ack before the restart may have been lost
	}
}

func TestConsume_makes_a_wiped_store_anew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := start(t, dir, 0)
	b := connect(t, first.URL())
	if err := b.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	messages, _ := consume(t, b, 1)
	publish(t, b, job.RemoveBG, "before", 0)
	next(t, messages).Ack()
	first.Stop()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	second := start(t, dir, port(t, first.URL()))
	other := connect(t, second.URL())
	for deadline := time.Now().Add(patience); other.Publish(t.Context(), job.RemoveBG, "after", 0) != nil; {
		if time.Now().After(deadline) {
			t.Fatal("the stream was not made anew")
		}
	}
	if got := next(t, messages).ID; got != "after" {
		t.Errorf("got %q, want after", got)
	}
}

func TestBroadcasts_reach_every_connection(t *testing.T) {
	t.Parallel()
	url := start(t, t.TempDir(), 0).URL()
	sender, listener := connect(t, url), connect(t, url)
	finished, revoked := make(chan job.ID, 1), make(chan apikey.Hash, 1)
	for _, listen := range []func() (func(), error){
		func() (func(), error) { return listener.OnFinished(func(id job.ID) { finished <- id }) },
		func() (func(), error) { return listener.OnRevoked(func(h apikey.Hash) { revoked <- h }) },
	} {
		stop, err := listen()
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	if err := listener.Flush(); err != nil {
		t.Fatal(err)
	}
	key := apikey.New("pictor").Hash()
	if err := sender.Finished("a"); err != nil {
		t.Fatal(err)
	}
	if err := sender.Revoked(key); err != nil {
		t.Fatal(err)
	}
	if got := <-finished; got != "a" {
		t.Errorf("finished %q, want a", got)
	}
	if got := <-revoked; got != key {
		t.Error("another key was revoked")
	}
}

// A message with an unknown payload on the broadcast must not end the process.
func TestOnRevoked_ignores_what_is_no_key(t *testing.T) {
	t.Parallel()
	url := start(t, t.TempDir(), 0).URL()
	b := connect(t, url)
	revoked := make(chan apikey.Hash, 2)
	stop, err := b.OnRevoked(func(h apikey.Hash) { revoked <- h })
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	raw, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	want := apikey.New("pictor").Hash()
	for _, payload := range [][]byte{nil, []byte("short"), want[:]} {
		if err := raw.Publish("keys.revoked", payload); err != nil {
			t.Fatal(err)
		}
	}
	if got := <-revoked; got != want {
		t.Error("another key was revoked")
	}
}

func port(t *testing.T, url string) int {
	t.Helper()
	addr, err := net.ResolveTCPAddr("tcp", strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	return addr.Port
}
