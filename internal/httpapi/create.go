package httpapi

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
	"unicode/utf8"

	api "pictor/gen"
	"pictor/internal/admission"
	"pictor/internal/fault"
	"pictor/internal/intake"
	"pictor/internal/job"
	"pictor/internal/postgres"
)

// creation is what a request for a job asks, whichever way it was sent.
type creation struct {
	task  job.Task
	image intake.Source
	wait  time.Duration
	key   string // Idempotency-Key
}

// RemoveBackground is POST /remove-bg.
func (a *API) RemoveBackground(ctx context.Context, req api.RemoveBackgroundReq, params api.RemoveBackgroundParams) (*api.JobWithBillingStatusCodeWithHeaders, error) {
	c := creation{task: job.RemoveBG, key: params.IdempotencyKey.Value}
	wait, err := params.Wait, checkKey(c.key)
	if err != nil {
		return nil, err
	}
	switch r := req.(type) {
	case *api.RemoveBgInput:
		c.image, err = fromJSON(r.ImageURL, r.ImageBase64)
		wait = firstSet(r.Wait, wait)
	case *api.RemoveBgFormMultipart:
		c.image, err = fromForm(r.Image, r.File)
		wait = firstSet(r.Wait, wait)
	case io.Reader:
		c.image, err = fromBody(r)
	}
	if err != nil {
		return nil, err
	}
	c.wait = time.Duration(wait.Value) * time.Second
	return a.create(ctx, c)
}

// Upscale is POST /upscale.
func (a *API) Upscale(ctx context.Context, req api.UpscaleReq, params api.UpscaleParams) (*api.JobWithBillingStatusCodeWithHeaders, error) {
	c := creation{key: params.IdempotencyKey.Value}
	wait, scale, err := params.Wait, params.Scale, checkKey(c.key)
	if err != nil {
		return nil, err
	}
	switch r := req.(type) {
	case *api.UpscaleInput:
		c.image, err = fromJSON(r.ImageURL, r.ImageBase64)
		wait, scale = firstSet(r.Wait, wait), firstSet(r.Scale, scale)
	case *api.UpscaleFormMultipart:
		c.image, err = fromForm(r.Image, r.File)
		wait, scale = firstSet(r.Wait, wait), firstSet(r.Scale, scale)
	case io.Reader:
		c.image, err = fromBody(r)
	}
	if err != nil {
		return nil, err
	}
	task, ok := job.Upscale(int(scale.Or(api.Scale2)))
	if !ok {
		return nil, fault.New(fault.InvalidRequest, rule("scale"))
	}
	c.task, c.wait = task, time.Duration(wait.Value)*time.Second
	return a.create(ctx, c)
}

// create takes the image in, has the job admitted, and answers with the job as
// it is, or has the request held as long as the client asked.
func (a *API) create(ctx context.Context, c creation) (*api.JobWithBillingStatusCodeWithHeaders, error) {
	admitted, err := a.admit(ctx, c)
	if err != nil {
		return nil, err
	}
	if c.wait > 0 && !admitted.Job.State.Final() {
		return nil, exchangeOf(ctx).await(held{account: admitted.Job.Account, id: admitted.Job.ID, wait: c.wait, made: &admitted})
	}
	return a.created(admitted.Job, admitted)
}

// created is the answer to whoever asked for a job.
func (a *API) created(now job.Job, admitted postgres.Admitted) (*api.JobWithBillingStatusCodeWithHeaders, error) {
	body, err := a.toJobWithBilling(now, admitted.Balance)
	if err != nil {
		return nil, err
	}
	answer := &api.JobWithBillingStatusCodeWithHeaders{StatusCode: http.StatusOK, Response: *body}
	if !now.State.Final() {
		answer.StatusCode = http.StatusAccepted
		answer.Location = api.NewOptString(a.jobURL(now.ID).EscapedPath())
	}
	if admitted.Replayed {
		answer.IdempotentReplayed = api.NewOptBool(true)
	}
	return answer, nil
}

func (a *API) admit(ctx context.Context, c creation) (postgres.Admitted, error) {
	image, err := a.takeOrRefuse(ctx, c)
	exchangeOf(ctx).bodyDone()
	if err != nil {
		return postgres.Admitted{}, err
	}
	defer image.Close()
	admitted, err := a.admission.Admit(ctx, admission.Request{
		Account: callerOf(ctx).account,
		Task:    c.task,
		Input:   image.Image,
		SHA256:  image.SHA256,
		Body:    image.Reader(),
		Key:     c.key,
	})
	exchangeOf(ctx).job = admitted.Job.ID
	return admitted, err
}

// takeOrRefuse looks at the account, unless that was done, before the image is
// downloaded or stored. An image that would not be taken anyway is refused for
// that: its sender must not send it again once there is room for its job.
func (a *API) takeOrRefuse(ctx context.Context, c creation) (*intake.Image, error) {
	if exchangeOf(ctx).looked != c.task {
		if refused := a.admission.Look(ctx, callerOf(ctx).account, c.task, c.key); refused != nil {
			if err := a.intake.Glance(ctx, c.task, c.image); err != nil {
				return nil, err
			}
			return nil, refused
		}
	}
	return a.intake.Take(ctx, c.task, c.image)
}

// checkKey refuses bytes that are no text: a header may hold any.
func checkKey(idempotencyKey string) error {
	if !utf8.ValidString(idempotencyKey) {
		return fault.New(fault.InvalidRequest, rule("Idempotency-Key"))
	}
	return nil
}

func fromJSON(url, base64 api.OptString) (intake.Source, error) {
	switch {
	case url.Value != "" && base64.Value != "":
		return intake.Source{}, fault.New(fault.InvalidRequest, "Send either image_url or image_base64, not both.")
	case url.Value == "" && base64.Value == "":
		return intake.Source{}, missingImage()
	}
	return intake.Source{URL: url.Value, Base64: base64.Value}, nil
}

func fromForm(image, file api.OptMultipartFile) (intake.Source, error) {
	for _, part := range []api.OptMultipartFile{image, file} {
		switch {
		case part.Value.Size > job.MaxImageBytes:
			return intake.Source{}, fault.TooLarge()
		case part.Value.Size > 0:
			return intake.Source{Bytes: part.Value.File}, nil
		}
	}
	return intake.Source{}, missingImage()
}

func fromBody(r io.Reader) (intake.Source, error) {
	buffered := bufio.NewReader(r)
	if _, err := buffered.Peek(1); err == io.EOF {
		return intake.Source{}, missingImage()
	} else if err != nil {
		return intake.Source{}, fmt.Errorf("read the body: %w", err)
	}
	return intake.Source{Bytes: buffered}, nil
}

// firstSet is a value of the body, or else that of the query.
func firstSet[T interface{ IsSet() bool }](inBody, inQuery T) T {
	if inBody.IsSet() {
		return inBody
	}
	return inQuery
}
