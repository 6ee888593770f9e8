package pictor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"time"
)

const (
	firstPause = 500 * time.Millisecond
	lastPause  = 30 * time.Second

	// A server that asks for more patience than this does not expect this
	// call to succeed.
	patience = 2 * time.Minute
)

// retry calls until it succeeds, fails for good, or was repeated often enough.
// The last error is returned, and at once when the context would end during the
// pause before the next call.
func retry[T any](ctx context.Context, c *Client, what string, call func() (T, error)) (T, error) {
	for try := 0; ; try++ {
		v, err := call()
		if err == nil {
			return v, nil
		}
		var none T
		err = fmt.Errorf("pictor: %s: %w", what, plain(err))
		wait, passes := mayPass(err)
		if !passes || try >= c.retries || ctx.Err() != nil {
			return none, err
		}
		wait = pause(try, wait)
		if end, ok := ctx.Deadline(); ok && time.Until(end) < wait {
			return none, err
		}
		if ended := sleep(ctx, wait); ended != nil {
			return none, fmt.Errorf("%w, after %w", ended, err)
		}
	}
}

// pause doubles with every try and is spread, so that clients that failed
// together do not come back together. The server's own wish is the least.
func pause(try int, least time.Duration) time.Duration {
	d := min(firstPause<<min(try, 10), lastPause)
	d = d/2 + rand.N(d/2)
	if d < least {
		d = least + rand.N(least/4+1)
	}
	return d
}

// plain is the refusal in an error, without what the generated client says
// about how it got it.
func plain(err error) error {
	var refused *Error
	if errors.As(err, &refused) {
		return refused
	}
	return err
}

// mayPass says whether the same call may succeed later, and when at the
// earliest.
func mayPass(err error) (after time.Duration, passes bool) {
	var refused *Error
	if errors.As(err, &refused) {
		// A job that is not ready is a matter for Wait.
		return refused.RetryAfter, refused.Retryable && refused.RetryAfter <= patience && !errors.Is(err, ErrJobNotReady)
	}
	var (
		untrusted *tls.CertificateVerificationError
		unknown   *net.DNSError
		request   *url.Error   // all that net/http says of a request
		reading   *net.OpError // of the body of an answer
	)
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, errWrite):
		return 0, false
	case errors.As(err, &untrusted), errors.As(err, &unknown) && unknown.IsNotFound:
		return 0, false
	}
	return 0, errors.As(err, &request) || errors.As(err, &reading) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errInterrupted)
}
