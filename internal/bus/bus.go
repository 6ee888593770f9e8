// Package bus is the queue: every subject, stream and acknowledgement.
//
// It owns the NATS connection, the work-queue stream with its consumers, and
// the two broadcasts (a job finished, a key was revoked). It owns no truth:
// Postgres does. JetStream acknowledges before it syncs to disk, so a message
// may be lost, doubled, late, or delivered after its publisher was told that
// publishing failed. Whoever uses this package must stay right in all of these
// cases:
//
//	lost      the sweeper publishes again, under the same message id
//	doubled   the second claim finds the job taken or final
//	phantom   the claim refuses a job that was cancelled
//	wiped     Ensure makes the stream and its consumers anew
//
// Callers: admission and sweep publish, work consumes and announces, wait
// listens for finished jobs, the edge listens for revoked keys.
package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"pictor/internal/job"
)

const (
	// ackWait is how long a message may stay without a sign of life before it
	// is delivered again. Message.Alive resets it, so it bounds the time to
	// notice a dead worker, not the time of a picture. A little more than the
	// lease, so that the next delivery finds the job free.
	ackWait = 20 * time.Second
	// duplicates is how long a message id is remembered. It must exceed the age
	// at which the sweeper first publishes again, so that the copy is absorbed.
	duplicates = 2 * time.Minute
	// maxMessages bounds the stream. Beyond it publishing fails, the job is
	// cancelled and the client is told to come back.
	maxMessages = 1_000_000
	// maxUnacknowledged bounds what all workers together hold of one task.
	// Beyond it NATS falls silent, so it exceeds what any fleet has in hand.
	maxUnacknowledged = 10_000
	// publishTimeout bounds one publish with its acknowledgement.
	publishTimeout = 5 * time.Second
	replicas       = 3
)

// Config says where NATS is.
type Config struct {
	URL  string // one or more nats:// or tls:// URLs, separated by commas
	Name string // of this connection, in NATS' own listings
	Credentials
	// Carry, when set, gives further headers for a message, such as the trace
	// that it belongs to.
	Carry func(context.Context) map[string]string
}

// Bus is a connection to NATS with JetStream. It reconnects by itself for as
// long as it is open.
type Bus struct {
	conn *nats.Conn
	js   jetstream.JetStream
	log  *slog.Logger

	carry    func(context.Context) map[string]string
	failures *failures
}

// Connect opens the connection. A server that cannot be reached yet is no
// error: publishing then fails at once, and consuming begins when it is there.
//
// Nothing is buffered while the connection is down (ReconnectBufSize -1): a
// buffered message would be sent later although its publisher was told that it
// failed, and had cancelled the job.
func Connect(c Config, log *slog.Logger) (*Bus, error) {
	b := &Bus{log: log, carry: c.Carry, failures: &failures{to: log}}
	options, err := c.Credentials.options()
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	options = append(options,
		nats.Name(c.Name),
		nats.ReconnectBufSize(-1),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.IgnoreAuthErrorAbort(), // credentials are renewed on one side before the other
		nats.ReconnectWait(100*time.Millisecond),
		nats.ReconnectJitter(200*time.Millisecond, time.Second),
		nats.Timeout(2*time.Second),
		nats.PingInterval(5*time.Second),
		nats.MaxPingsOutstanding(2),
		nats.ReconnectErrHandler(b.failures.log),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("the queue's connection is down", "error", err)
			}
		}),
		nats.ReconnectHandler(func(conn *nats.Conn) {
			log.Info("the queue's connection is back", "server", conn.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) {
			if sub != nil {
				log.Warn("the queue dropped messages", "subject", sub.Subject, "error", err)
				return
			}
			log.Warn("the queue's connection", "error", err)
		}),
	)
	conn, err := nats.Connect(c.URL, options...)
	if err != nil {
		return nil, fmt.Errorf("connect to NATS: %w", err)
	}
	b.conn = conn
	if b.js, err = jetstream.New(conn, jetstream.WithDefaultTimeout(publishTimeout)); err != nil {
		conn.Close()
		return nil, fmt.Errorf("open JetStream: %w", err)
	}
	return b, nil
}

// failures logs why a connection attempt failed, once per reason: there are
// several attempts a second.
type failures struct {
	to   *slog.Logger
	last atomic.Pointer[error]
}

func (f *failures) log(_ *nats.Conn, err error) {
	if err == nil {
		return
	}
	if last := f.last.Swap(&err); last != nil && (*last).Error() == err.Error() {
		return
	}
	f.to.Warn("the queue cannot be reached", "error", err)
}

// because says why there is no connection, where err only says that nothing is
// kept until there is one.
func (f *failures) because(err error) error {
	if !errors.Is(err, nats.ErrReconnectBufExceeded) {
		return err
	}
	if last := f.last.Load(); last != nil {
		return fmt.Errorf("there is no connection to NATS: %w", *last)
	}
	return errors.New("there is no connection to NATS")
}

// Close ends the connection. Messages that are not acknowledged are delivered
// again, to whoever consumes then.
func (b *Bus) Close() { b.conn.Close() }

// Ensure makes the stream and the consumers exist. It is cheap when they do,
// and is called again and again, because a store can be lost.
//
// The stream is kept on three servers where the cluster has them. It is never
// scaled down here: a cluster that is short of a server for a moment keeps its
// replicas.
func (b *Bus) Ensure(ctx context.Context) error {
	if err := b.ensureStream(ctx); err != nil {
		return fmt.Errorf("ensure the stream: %w", b.failures.because(err))
	}
	for _, t := range job.Tasks() {
		if err := b.ensureConsumer(ctx, t); err != nil {
			return fmt.Errorf("ensure the consumer of %s: %w", t, b.failures.because(err))
		}
	}
	return nil
}

// ensureConsumer looks first: a cluster agrees on every update, also on one that
// changes nothing, and every process asks every few seconds.
func (b *Bus) ensureConsumer(ctx context.Context, t job.Task) error {
	want := jetstream.ConsumerConfig{
		Durable:       consumerName(t),
		FilterSubject: runSubject(t),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       ackWait,
		MaxDeliver:    -1, // the job counts its attempts; a message that NATS gave up on would stay in the stream unseen
		MaxAckPending: maxUnacknowledged,
	}
	c, err := b.js.Consumer(ctx, stream, want.Durable)
	if err == nil {
		is := c.CachedInfo().Config
		if is.FilterSubject == want.FilterSubject && is.AckWait == want.AckWait && is.MaxDeliver == want.MaxDeliver && is.MaxAckPending == want.MaxAckPending {
			return nil
		}
	}
	_, err = b.js.CreateOrUpdateConsumer(ctx, stream, want)
	return err
}

func (b *Bus) ensureStream(ctx context.Context) error {
	s, err := b.js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if _, err = b.js.CreateStream(ctx, streamConfig(replicas)); err != nil {
			_, err = b.js.CreateStream(ctx, streamConfig(1)) // a single server, or too few of them
		}
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil // another process was faster
		}
		return err
	}
	if err != nil {
		return err
	}
	if info := s.CachedInfo(); info.Config.Replicas < replicas && info.Cluster != nil && info.Cluster.Name != "" {
		if _, err := b.js.UpdateStream(ctx, streamConfig(replicas)); err == nil {
			b.log.Info("the queue is replicated", "replicas", replicas)
		}
	}
	return nil
}

func streamConfig(replicas int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:        stream,
		Description: "Ids of charged jobs that wait for a worker. A hint: Postgres has the truth.",
		Subjects:    []string{runSubjects},
		Retention:   jetstream.WorkQueuePolicy,
		Discard:     jetstream.DiscardNew, // a full queue refuses new jobs; it never drops charged ones
		MaxMsgs:     maxMessages,
		Storage:     jetstream.FileStorage,
		Duplicates:  duplicates,
		Replicas:    replicas,
	}
}

// Publish queues a job. The message id is made of the job's id and its fence,
// so that any number of copies within the window become one message. A nil
// error means that the server has the message, not that it is on disk; an error
// does not mean that it has not.
func (b *Bus) Publish(ctx context.Context, t job.Task, id job.ID, fence int64) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	header := nats.Header{messageIDHeader: {fmt.Sprintf("%s:%d", id, fence)}}
	if b.carry != nil {
		for name, value := range b.carry(ctx) {
			header.Set(name, value)
		}
	}
	_, err := b.js.PublishMsg(ctx, &nats.Msg{Subject: runSubject(t), Header: header, Data: []byte(id)})
	if err != nil {
		return fmt.Errorf("publish job %s: %w", id, err)
	}
	return nil
}

// Backlog is the number of messages of each task that no worker has taken yet.
func (b *Bus) Backlog(ctx context.Context) (map[job.Task]uint64, error) {
	backlog := make(map[job.Task]uint64)
	for _, t := range job.Tasks() {
		c, err := b.js.Consumer(ctx, stream, consumerName(t))
		if err != nil {
			return nil, fmt.Errorf("look at the consumer of %s: %w", t, b.failures.because(err))
		}
		backlog[t] = c.CachedInfo().NumPending
	}
	return backlog, nil
}

// Waited is how long the message has been in the queue that the next worker of
// a task will be given, 0 when none waits. Messages that were published later
// wait behind it. Both ends of the time are told by NATS.
func (b *Bus) Waited(ctx context.Context, t job.Task) (time.Duration, error) {
	c, err := b.js.Consumer(ctx, stream, consumerName(t))
	if err != nil {
		return 0, fmt.Errorf("look at the consumer of %s: %w", t, err)
	}
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("look at the stream: %w", err)
	}
	info := c.CachedInfo()
	next, err := s.GetMsg(ctx, info.Delivered.Stream+1, jetstream.WithGetMsgSubject(runSubject(t)))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look at the next message of %s: %w", t, err)
	}
	return max(0, info.TimeStamp.Sub(next.Time)), nil
}

// Messages is the number of messages of all tasks that are not acknowledged.
func (b *Bus) Messages(ctx context.Context) (uint64, error) {
	s, err := b.js.Stream(ctx, stream)
	if err != nil {
		return 0, fmt.Errorf("look at the stream: %w", err)
	}
	return s.CachedInfo().State.Msgs, nil
}
