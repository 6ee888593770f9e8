// Package pictor is the Go client of a Pictor server: background removal and
// 2x/4x upscaling of images, paid per image.
//
//	client, err := pictor.New("https://api.example.com/api/v1", key)
//	job, err := client.RemoveBackground(ctx, pictor.File("cat.jpg"), pictor.WithWait(2*time.Minute))
//	_, err = client.Download(ctx, job.ID, out)
//
// Requests that fail in a way that may pass are repeated with growing pauses,
// never before the server's Retry-After. That is safe: each call that creates a
// job carries an Idempotency-Key, one and the same in all its repetitions, so
// that one call never charges twice. Refusals are of type *Error; compare them
// with errors.Is:
//
//	if errors.Is(err, pictor.ErrInsufficientBalance) { ... }
//
// Amounts are in Point. They have at most three decimals, and a float64 prints
// them exactly.
package pictor

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/ogen-go/ogen/ogenerrors"

	api "pictor/gen"
)

// Client talks to one Pictor server with one key. It is safe for concurrent
// use.
type Client struct {
	api     *api.Client
	retries int
}

// New makes a client. baseURL is the root of the API,
// "https://api.example.com/api/v1"; a URL without a path gets that one. Only
// Tasks works without a key.
func New(baseURL, key string, options ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil {
		return nil, fmt.Errorf("pictor: base URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("pictor: base URL %q: want an absolute http(s) URL", baseURL)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/api/v1"
	}
	s := defaults()
	for _, option := range options {
		option(s)
	}
	generated, err := api.NewClient(u.String(), secret(key),
		api.WithClient(s.httpClient()),
		api.WithRequestEditor(func(_ context.Context, r *http.Request) error {
			r.Header.Set("User-Agent", s.userAgent)
			return nil
		}),
		api.WithResponseEditor(func(_ context.Context, r *http.Response) error { return refusal(r) }))
	if err != nil {
		return nil, fmt.Errorf("pictor: %w", err)
	}
	return &Client{api: generated, retries: s.retries}, nil
}

// secret is the key as the generated client asks for it. It goes into
// Authorization, which net/http does not carry to another host.
type secret string

func (s secret) Bearer(context.Context, api.OperationName) (api.Bearer, error) {
	if s == "" {
		return api.Bearer{}, &Error{Code: ErrUnauthorized.Code, Status: http.StatusUnauthorized, Message: "An API key is required: give one to pictor.New."}
	}
	return api.Bearer{Token: string(s)}, nil
}

func (s secret) APIKey(context.Context, api.OperationName) (api.APIKey, error) {
	return api.APIKey{}, ogenerrors.ErrSkipClientSecurity
}

// Me reads the account behind the key.
func (c *Client) Me(ctx context.Context) (*Account, error) {
	a, err := retry(ctx, c, "read the account", func() (*api.Account, error) { return c.api.GetMe(ctx) })
	if err != nil {
		return nil, err
	}
	return newAccount(a), nil
}

// Tasks reads prices and limits. It needs no key.
func (c *Client) Tasks(ctx context.Context) (*Tasks, error) {
	t, err := retry(ctx, c, "read the tasks", func() (*api.Tasks, error) { return c.api.GetTasks(ctx) })
	if err != nil {
		return nil, err
	}
	return newTasks(t), nil
}

// Job reads a job as it is now.
func (c *Client) Job(ctx context.Context, id string) (*Job, error) { return c.poll(ctx, id, 0) }

// poll reads a job, and holds the answer for up to wait while it is not final.
func (c *Client) poll(ctx context.Context, id string, wait time.Duration) (*Job, error) {
	what := "read job " + id
	params := api.GetJobParams{Wait: seconds(wait)}
	var err error
	if params.ID, err = jobID(id); err != nil {
		return nil, fmt.Errorf("pictor: %s: %w", what, err)
	}
	j, err := retry(ctx, c, what, func() (*api.Job, error) { return c.api.GetJob(ctx, params) })
	if err != nil {
		return nil, err
	}
	return newJob(j), nil
}

// jobID spares the server an id that is none; it would say the same.
func jobID(id string) (uuid.UUID, error) {
	u, err := uuid.Parse(id)
	if err != nil {
		return u, &Error{Code: ErrNotFound.Code, Status: http.StatusNotFound, Message: "No such job: this is not a job id."}
	}
	return u, nil
}

// longest is the longest time that the server holds an answer.
const longest = 60 * time.Second

func seconds(wait time.Duration) api.OptWait {
	if wait <= 0 {
		return api.OptWait{}
	}
	return api.NewOptWait(api.Wait((min(wait, longest) + time.Second - 1) / time.Second))
}

// Wait reads a job until it is completed or has failed, and returns it. A
// failed job is no error here: see Job.Err. Each func in watch is called with
// the job about every two seconds on the way, and at the end.
func (c *Client) Wait(ctx context.Context, id string, watch ...func(*Job)) (*Job, error) {
	hold := longest
	if len(watch) > 0 {
		hold = 2 * time.Second
	}
	return c.follow(ctx, id, hold, time.Time{}, watch)
}

// follow polls until the job is final, or until the time given, if one is.
func (c *Client) follow(ctx context.Context, id string, hold time.Duration, until time.Time, watch []func(*Job)) (*Job, error) {
	for {
		start, wait := time.Now(), hold
		if !until.IsZero() {
			wait = min(hold, until.Sub(start))
		}
		j, err := c.poll(ctx, id, wait)
		if err != nil {
			return nil, err
		}
		for _, see := range watch {
			see(j)
		}
		if j.Final() || !until.IsZero() && !time.Now().Before(until) {
			return j, nil
		}
		// A server that answers before its time, as one that is going down
		// does, must not be asked all the time.
		if err := sleep(ctx, time.Second-time.Since(start)); err != nil {
			return nil, fmt.Errorf("pictor: wait for job %s: %w", id, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err()
	}
}

// RemoveBackground creates a job that cuts out the subject of an image; its
// result is a PNG with transparency. It returns the job as the server created
// it, or as it is after the time of WithWait. When that wait fails, the job
// comes along with the error: it exists, and is charged.
func (c *Client) RemoveBackground(ctx context.Context, image Image, options ...CreateOption) (*Job, error) {
	return c.create(ctx, "remove a background", image, options, func(o *create, u *upload) (*api.JobWithBillingStatusCodeWithHeaders, error) {
		params := api.RemoveBackgroundParams{Wait: seconds(o.wait), IdempotencyKey: api.NewOptString(o.key)}
		if u == nil {
			return c.api.RemoveBackground(ctx, &api.RemoveBgInput{ImageURL: api.NewOptString(image.url)}, params)
		}
		return c.api.RemoveBackground(ctx, &api.RemoveBackgroundReqImagePNG{Data: http.NoBody}, params, api.WithEditRequest(u.attach))
	})
}

// Upscale creates a job that enlarges an image; scale is 2 or 4. The result has
// the type of the image where that can hold it. It returns the job as
// RemoveBackground does.
func (c *Client) Upscale(ctx context.Context, image Image, scale int, options ...CreateOption) (*Job, error) {
	return c.create(ctx, "upscale", image, options, func(o *create, u *upload) (*api.JobWithBillingStatusCodeWithHeaders, error) {
		params := api.UpscaleParams{Wait: seconds(o.wait), IdempotencyKey: api.NewOptString(o.key), Scale: api.NewOptScale(api.Scale(scale))}
		if u == nil {
			return c.api.Upscale(ctx, &api.UpscaleInput{ImageURL: api.NewOptString(image.url)}, params)
		}
		return c.api.Upscale(ctx, &api.UpscaleReqImagePNG{Data: http.NoBody}, params, api.WithEditRequest(u.attach))
	})
}

func (c *Client) create(ctx context.Context, what string, image Image, options []CreateOption,
	send func(*create, *upload) (*api.JobWithBillingStatusCodeWithHeaders, error),
) (*Job, error) {
	o := &create{key: uuid.NewString()}
	for _, option := range options {
		option(o)
	}
	until := time.Now().Add(o.wait)
	u, err := image.prepare()
	if err != nil {
		return nil, fmt.Errorf("pictor: %s: %w", what, err)
	}
	answer, err := retry(ctx, c, what, func() (*api.JobWithBillingStatusCodeWithHeaders, error) { return send(o, u) })
	if err != nil {
		return nil, err
	}
	created := newCreatedJob(answer)
	if created.Final() || !time.Now().Before(until) {
		return created, nil
	}
	now, err := c.follow(ctx, created.ID, longest, until, nil)
	if err != nil {
		return created, err
	}
	now.Billing, now.Replayed = created.Billing, created.Replayed
	return now, nil
}
