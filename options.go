package pictor

import (
	"net/http"
	"time"
)

// Option changes a Client.
type Option func(*settings)

type settings struct {
	client    *http.Client
	retries   int
	userAgent string
}

func defaults() *settings {
	return &settings{retries: 6, userAgent: "pictor-go"}
}

// WithHTTPClient makes the client use c for its connections. Its Timeout, if
// any, must leave room for an upload and a wait of 60 seconds.
func WithHTTPClient(c *http.Client) Option { return func(s *settings) { s.client = c } }

// WithRetries sets how often a request is repeated when it failed in a way that
// may pass; 6 when not given, which takes about half a minute. 0 is never.
func WithRetries(n int) Option { return func(s *settings) { s.retries = n } }

// WithUserAgent names the program that uses the client.
func WithUserAgent(name string) Option { return func(s *settings) { s.userAgent = name } }

// httpClient never follows redirects: an API does not redirect, and net/http
// would make a GET out of a POST.
func (s *settings) httpClient() *http.Client {
	var c http.Client
	if s.client != nil {
		c = *s.client
	} else if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t = t.Clone()
		// From the last byte of a request to the first of its answer.
		t.ResponseHeaderTimeout = longest + 40*time.Second
		t.MaxIdleConnsPerHost = 16
		c.Transport = t
	}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// CreateOption changes one call that creates a job.
type CreateOption func(*create)

type create struct {
	wait time.Duration
	key  string
}

// WithWait makes the call return when the job is final or the time is over,
// whichever comes first. Any time is fine: what is longer than one request may
// take is done in several.
func WithWait(d time.Duration) CreateOption { return func(c *create) { c.wait = d } }

// WithIdempotencyKey gives the call a key of your own instead of a new one. A
// later call with the same key, image and options, within 24 hours and also
// from another process, returns the job of the first and charges nothing.
func WithIdempotencyKey(key string) CreateOption { return func(c *create) { c.key = key } }
