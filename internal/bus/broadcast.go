package bus

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"pictor/internal/apikey"
	"pictor/internal/job"
)

// pendingBroadcasts bounds what one subscription holds when its handler falls
// behind. What overflows is lost, which every listener must bear anyway.
const pendingBroadcasts = 1 << 20

// Finished tells whoever waits that a job became final. It is best effort: a
// waiter also re-reads the job now and then.
func (b *Bus) Finished(id job.ID) error { return b.conn.Publish(finishedSubject(id), nil) }

// OnFinished calls do for every job that becomes final anywhere, one call at a
// time. do must not block: it runs on the connection's reader.
func (b *Bus) OnFinished(do func(job.ID)) (stop func(), err error) {
	return b.listen(finishedAll, func(m *nats.Msg) { do(finishedID(m.Subject)) })
}

// Revoked tells every process to forget a key it may have cached.
func (b *Bus) Revoked(h apikey.Hash) error { return b.conn.Publish(revokedSubject, h[:]) }

// OnRevoked calls do for every revoked key. do must not block.
func (b *Bus) OnRevoked(do func(apikey.Hash)) (stop func(), err error) {
	return b.listen(revokedSubject, func(m *nats.Msg) {
		if len(m.Data) == len(apikey.Hash{}) {
			do(apikey.Hash(m.Data))
		}
	})
}

// OnReconnect calls do when the connection came back: broadcasts may have been
// missed.
func (b *Bus) OnReconnect(do func()) (stop func()) {
	status := b.conn.StatusChanged(nats.CONNECTED)
	go func() {
		for range status {
			do()
		}
	}()
	return func() { b.conn.RemoveStatusListener(status) }
}

// Flush returns when everything that was announced so far has reached the
// server. A process that ends right after an announcement needs it.
func (b *Bus) Flush() error { return b.conn.FlushTimeout(2 * time.Second) }

func (b *Bus) listen(subject string, do nats.MsgHandler) (stop func(), err error) {
	sub, err := b.conn.Subscribe(subject, do)
	if err != nil {
		return nil, fmt.Errorf("listen to %s: %w", subject, err)
	}
	if err := sub.SetPendingLimits(pendingBroadcasts, -1); err != nil {
		return nil, fmt.Errorf("listen to %s: %w", subject, err)
	}
	return func() { _ = sub.Unsubscribe() }, nil
}
