package httpapi

import (
	"context"
	"io"
	"mime"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"pictor/internal/fault"
	"pictor/internal/job"
)

const (
	formMemory = 1 << 20  // bytes of a form kept in memory; the rest of it goes to temporary files
	envelope   = 64 << 10 // bytes around the image in a form or JSON body

	// A body that arrives slower than this is cut off, so that a connection
	// cannot be held for nothing.
	headStart  = 30 * time.Second
	leastSpeed = 16 << 10 // bytes per second
	// The time for so much is given at once: to set a deadline for every read
	// would cost a third of the reading.
	stretch = 256 << 10

	// jsonCost is how many bytes of memory one byte of a JSON body takes at the
	// peak: as read, as copied by ogen, and as decoded.
	jsonCost = 4.5
	// reserveTimeout is how long a JSON body waits for memory.
	reserveTimeout = 60 * time.Second

	// What is read of a refused body before the answer, for clients that send
	// everything before they look: net/http would reset the connection instead.
	drainBytes   = 64 << 20
	drainTimeout = 10 * time.Second
)

// bodyLimit is the most that a body can hold when its image is not too large.
// Base64 takes 4 bytes for 3, and up to a tenth more for escaped line breaks
// and slashes. The image itself is measured exactly where it is taken out.
func bodyLimit(mediaType string) int64 {
	switch mediaType {
	case "multipart/form-data":
		return job.MaxImageBytes + envelope
	case "application/json":
		return job.MaxImageBytes/3*4 + job.MaxImageBytes/10 + envelope
	}
	return job.MaxImageBytes
}

// body is a request body that keeps its limits. Nothing is read before the
// first Read, which is after the key was checked.
type body struct {
	from     io.ReadCloser
	media    string // type, "" when none can be read
	boundary string // of a form
	limit    int64
	declared int64 // Content-Length, -1 for none
	expects  bool  // the client sends nothing before it is asked to
	conn     *http.ResponseController
	ctx      context.Context
	line     *connection // nil: what nobody looks at is copied all the same

	memory  *semaphore.Weighted // nil: this body is not held in memory
	share   int64               // of memory; 0 while none is held
	release func()

	first   func() error // may refuse the body before it is read; it reads itself
	again   []byte       // was read by first, and comes once more
	started time.Time    // of the first Read
	count   int64
	until   int64 // the count that the deadline is for
	err     error // what every further Read answers
}

func newBody(w http.ResponseWriter, r *http.Request, memory *semaphore.Weighted, budget int64) *body {
	mediaType, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	b := &body{
		from:     r.Body,
		media:    mediaType,
		boundary: params["boundary"],
		limit:    bodyLimit(mediaType),
		declared: r.ContentLength,
		expects:  r.Header.Get("Expect") != "",
		conn:     http.NewResponseController(w),
		ctx:      r.Context(),
		line:     connectionOf(r.Context()),
		release:  func() {},
	}
	if mediaType == "application/json" {
		size := b.limit
		if b.declared >= 0 {
			size = min(size, b.declared)
		}
		b.memory, b.share = memory, min(int64(float64(size)*jsonCost), budget)
	}
	return b
}

// Read is io.Reader. Its errors are faults, so that whoever reads may wrap and
// return them.
func (b *body) Read(p []byte) (int, error) {
	if b.err == nil && b.started.IsZero() {
		if err := b.start(); err != nil {
			b.err = err
		}
	}
	if len(b.again) > 0 {
		n := copy(p, b.again)
		b.again = b.again[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	// One byte more than allowed tells a body of just the limit from a longer one.
	if room := b.limit - b.count + 1; int64(len(p)) > room {
		p = p[:room]
	}
	if b.count >= b.until {
		b.until = b.count + stretch
		b.setDeadline(b.started.Add(headStart + time.Duration(b.until)*time.Second/leastSpeed))
	}
	n, err := b.from.Read(p)
	b.count += int64(n)
	switch {
	case b.count > b.limit:
		n, b.err = n-1, fault.TooLarge()
	case err == io.EOF:
		b.err = err
		// The deadline must not outlive the body: net/http goes on reading to
		// notice a client that leaves, and would take it for one.
		b.setDeadline(time.Time{})
	case err != nil:
		b.err = fault.Because(fault.BadRequest, "The request body ended before it was complete, or arrived too slowly. Send the request again.", err)
	}
	return n, b.err
}

// start refuses a body whose length says that it is too large, and takes the
// memory that it needs.
func (b *body) start() error {
	if b.declared > b.limit {
		b.started = time.Now()
		return fault.TooLarge()
	}
	if first := b.first; first != nil {
		b.first = nil
		if err := first(); err != nil || !b.started.IsZero() {
			return err
		}
	}
	b.started = time.Now()
	if b.memory == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.ctx, reserveTimeout)
	defer cancel()
	if err := b.memory.Acquire(ctx, b.share); err != nil {
		return fault.Busy(err)
	}
	b.release = sync.OnceFunc(func() { b.memory.Release(b.share) })
	b.started = time.Now()
	return nil
}

// Close does nothing: net/http closes the body, and an early close would leave
// drain nothing to read.
func (b *body) Close() error { return nil }

// finish reads to the end what a decoder left after the image, such as the last
// line of a form: net/http watches for a client that leaves only after that.
func (b *body) finish() { _, _ = io.CopyN(io.Discard, b, envelope) }

// skip reads the rest without anybody looking at it. The buffer is for that
// alone, and whatever was in it stays there.
func (b *body) skip(buffer []byte) error {
	b.line.ignore(buffer)
	defer b.line.regard()
	for {
		if _, err := b.Read(buffer); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// drain reads what the client still sends, so that it gets to see the answer.
func (b *body) drain() {
	if b.expects && b.started.IsZero() {
		return
	}
	b.setDeadline(time.Now().Add(drainTimeout))
	if n, err := io.CopyN(io.Discard, b.from, drainBytes); n < drainBytes && err == io.EOF {
		b.setDeadline(time.Time{})
	}
}

// setDeadline has no effect on a connection that cannot have one, as in tests
// without a network.
func (b *body) setDeadline(t time.Time) { _ = b.conn.SetReadDeadline(t) }
