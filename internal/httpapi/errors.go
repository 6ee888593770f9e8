package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-faster/jx"
	"github.com/ogen-go/ogen/ogenerrors"

	api "pictor/gen"
	"pictor/internal/fault"
	"pictor/openapi"
)

// status gives every code its HTTP status. The codes are in the contract's
// description of ErrorDetail.code, too; a test holds the two together.
func status(c fault.Code) int {
	switch c {
	case fault.BadRequest:
		return http.StatusBadRequest
	case fault.Unauthorized, fault.InvalidKey:
		return http.StatusUnauthorized
	case fault.InsufficientBalance:
		return http.StatusPaymentRequired
	case fault.AccountNotFound:
		return http.StatusForbidden
	case fault.NotFound:
		return http.StatusNotFound
	case fault.MethodNotAllowed:
		return http.StatusMethodNotAllowed
	case fault.JobNotReady, fault.JobFailed:
		return http.StatusConflict
	case fault.FileTooLarge:
		return http.StatusRequestEntityTooLarge
	case fault.UnsupportedMediaType:
		return http.StatusUnsupportedMediaType
	case fault.MissingImage, fault.InvalidImage, fault.InvalidImageURL, fault.ImageURLUnreachable, fault.InvalidRequest:
		return http.StatusUnprocessableEntity
	case fault.TooManyJobs:
		return http.StatusTooManyRequests
	case fault.QueueError:
		return http.StatusBadGateway
	default: // fault.BillingUnavailable, fault.Unavailable
		return http.StatusServiceUnavailable
	}
}

// unmet is a condition of the request (Range, If-Match) that the result does
// not meet: the one refusal whose status is not its code's.
type unmet struct {
	status  int
	refusal *fault.Error
}

func (e unmet) Error() string { return e.refusal.Error() }

func (e unmet) Unwrap() error { return e.refusal }

// NewError is the answer to every error: ogen calls it for those of handlers
// and key checks, handleError and the rest of the edge for all others.
func (a *API) NewError(ctx context.Context, err error) *api.ErrorStatusCodeWithHeaders {
	x := exchangeOf(ctx)
	f := x.whose(refusal(err))
	answer := &api.ErrorStatusCodeWithHeaders{
		StatusCode: status(f.Code),
		Response:   api.Error{Error: api.ErrorDetail{Code: string(f.Code), Message: f.Message}},
	}
	if condition, ok := errors.AsType[unmet](err); ok {
		answer.StatusCode = condition.status
	}
	detail := &answer.Response.Error
	if f.Code == fault.InsufficientBalance {
		detail.Required = api.NewOptFloat64(f.Required.Float())
		detail.Balance = api.NewOptFloat64(f.Balance.Float())
	}
	if f.RetryAfter > 0 {
		seconds := (f.RetryAfter + time.Second - 1) / time.Second
		answer.RetryAfter = api.NewOptInt(int(seconds))
	}
	if answer.StatusCode == http.StatusUnauthorized {
		answer.WWWAuthenticate = api.NewOptString(`Bearer realm="api"`)
	}
	x.refusal = f
	if retryable, known := f.Retryable(); known {
		detail.Retryable = api.NewOptBool(retryable)
		// SDKs that retry every 409 and 5xx by themselves obey this.
		x.writer.Header().Set("X-Should-Retry", strconv.FormatBool(retryable))
	}
	return answer
}

// refusal finds the fault in an error of a handler or a key check.
func refusal(err error) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f
	}
	if _, ok := errors.AsType[*ogenerrors.SecurityError](err); ok && errors.Is(err, ogenerrors.ErrSecurityRequirementIsNotSatisfied) {
		return fault.New(fault.Unauthorized, "An API key is required: send `Authorization: Bearer <API_KEY>` or `X-Api-Key: <API_KEY>`.")
	}
	return fault.Busy(err)
}

// whose is the client's fault where a failure of ours is only what follows from
// it: net/http cancels the context of a request whose body breaks off or comes
// too slowly, and whoever was at work then sees no more than that.
func (x *exchange) whose(f *fault.Error) *fault.Error {
	if x.body == nil || status(f.Code) < http.StatusInternalServerError {
		return f
	}
	if broken, ok := errors.AsType[*fault.Error](x.body.err); ok {
		return broken
	}
	return f
}

// handleError answers what ogen could not decode or encode.
func (a *API) handleError(ctx context.Context, _ http.ResponseWriter, r *http.Request, err error) {
	x := exchangeOf(ctx)
	if x.writer.status != 0 {
		panic(http.ErrAbortHandler) // a second answer must not be appended to the first
	}
	a.refuse(x, undecodable(r, err))
}

// refuse writes the answer to an error outside of ogen.
func (a *API) refuse(x *exchange, err error) {
	answer := a.NewError(context.WithValue(context.Background(), exchangeKey{}, x), err)
	h := x.writer.Header()
	h.Set("Content-Type", "application/json; charset=utf-8")
	if seconds, ok := answer.RetryAfter.Get(); ok {
		h.Set("Retry-After", strconv.Itoa(seconds))
	}
	var e jx.Encoder
	answer.Response.Encode(&e)
	x.writer.WriteHeader(answer.StatusCode)
	_, _ = e.WriteTo(x.writer)
}

func (a *API) unknownPath(_ http.ResponseWriter, r *http.Request) {
	a.refuse(exchangeOf(r.Context()), fault.New(fault.NotFound,
		"There is nothing at this path. The API is described in "+openapi.Prefix+"/openapi.json."))
}

// wrongMethod also gets every OPTIONS that is no preflight.
func (a *API) wrongMethod(_ http.ResponseWriter, r *http.Request, allowed string) {
	x := exchangeOf(r.Context())
	methods := strings.Split(allowed, ",")
	if allowed == http.MethodGet {
		methods = append(methods, http.MethodHead)
	}
	list := strings.Join(append(methods, http.MethodOptions), ", ")
	x.writer.Header().Set("Allow", list)
	if r.Method == http.MethodOptions {
		x.writer.WriteHeader(http.StatusNoContent)
		return
	}
	a.refuse(x, fault.New(fault.MethodNotAllowed, "This path takes "+list+"."))
}
