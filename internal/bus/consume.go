package bus

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"pictor/internal/job"
)

const (
	// fetchWait bounds one pull. The heartbeat within it notices a server that
	// restarted and forgot the pull.
	fetchWait      = 5 * time.Second
	fetchHeartbeat = time.Second
	// fetchPause keeps a worker from spinning while NATS is away.
	fetchPause = 250 * time.Millisecond
)

// Message is a job that is offered to this worker. Exactly one of Ack and Retry
// ends it.
type Message struct {
	ID   job.ID
	Task job.Task // whose queue it came from
	msg  jetstream.Msg
}

// Header is a header of the message, "" when it has none of that name.
func (m Message) Header(name string) string { return m.msg.Headers().Get(name) }

// Alive tells the server that the work goes on: it will not deliver the message
// again for another ackWait. It is no lock; the fence is.
func (m Message) Alive() { _ = m.msg.InProgress() }

// Ack removes the message. Call it only after the job's final state is
// committed, or when there is nothing to do: a lost Ack means one more delivery
// of a job that is final.
func (m Message) Ack() { _ = m.msg.Ack() }

// Retry gives the message back, to be delivered again after the delay.
func (m Message) Retry(delay time.Duration) {
	if delay <= 0 {
		_ = m.msg.Nak()
		return
	}
	_ = m.msg.NakWithDelay(delay)
}

// Consume offers messages of the tasks to do, at most slots at a time, each in a
// goroutine of its own, until ctx is done. Then it takes no more and returns
// when every do has returned.
//
// A message is pulled only while a slot is free, so that none waits in a busy
// worker while another is idle.
func (b *Bus) Consume(ctx context.Context, tasks []job.Task, slots int, do func(Message)) {
	free := newSlots(slots)
	var pullers, running sync.WaitGroup
	for _, t := range tasks {
		pullers.Go(func() {
			for free.wait(ctx) {
				m, ok := b.pull(ctx, t)
				if !ok {
					continue
				}
				if !free.take() { // another task's message came first
					m.Retry(0)
					continue
				}
				running.Go(func() {
					defer free.give()
					do(m)
				})
			}
		})
	}
	pullers.Wait()
	running.Wait()
}

// pull waits a while for one message of a task.
func (b *Bus) pull(ctx context.Context, t job.Task) (Message, bool) {
	msg, err := b.fetch(ctx, t)
	switch {
	case msg != nil:
		return Message{ID: job.ID(msg.Data()), Task: t, msg: msg}, true
	case ctx.Err() != nil:
		return Message{}, false
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrConsumerNotFound), errors.Is(err, jetstream.ErrConsumerDeleted):
		b.log.Warn("the queue's store was lost; making it anew", "task", t)
		if err := b.Ensure(ctx); err != nil {
			b.log.Warn("the queue cannot be made", "error", err)
		}
	case err != nil:
		b.log.Debug("pull", "task", t, "error", err)
	default:
		return Message{}, false
	}
	select {
	case <-ctx.Done():
	case <-time.After(fetchPause):
	}
	return Message{}, false
}

func (b *Bus) fetch(ctx context.Context, t job.Task) (jetstream.Msg, error) {
	look, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	c, err := b.js.Consumer(look, stream, consumerName(t))
	if err != nil {
		return nil, err
	}
	wait, stop := context.WithTimeout(ctx, fetchWait)
	defer stop()
	batch, err := c.Fetch(1, jetstream.FetchContext(wait), jetstream.FetchHeartbeat(fetchHeartbeat))
	if err != nil {
		return nil, err
	}
	for msg := range batch.Messages() {
		return msg, nil
	}
	if err := batch.Error(); err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, jetstream.ErrNoMessages) {
		return nil, err
	}
	return nil, nil
}

// slots counts free places. Unlike a semaphore it can be waited on without
// being taken, because a pull for every task must be open for one free place.
type slots struct {
	mu      sync.Mutex
	free    int
	changed chan struct{} // closed when free rises from 0
}

func newSlots(n int) *slots { return &slots{free: n, changed: make(chan struct{})} }

// wait returns true when a place is free, false when ctx is done.
func (s *slots) wait(ctx context.Context) bool {
	for {
		s.mu.Lock()
		free, changed := s.free, s.changed
		s.mu.Unlock()
		if ctx.Err() != nil {
			return false
		}
		if free > 0 {
			return true
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
}

func (s *slots) take() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.free == 0 {
		return false
	}
	s.free--
	return true
}

func (s *slots) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if s.free == 1 {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}
