package pictor

import (
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Code names a refusal. Servers may have codes that are not in this list.
type Code string

// Error is a refusal: an answer of the server that is no success.
type Error struct {
	Code    Code
	Status  int    // of HTTP
	Message string // a sentence for people

	// Of ErrInsufficientBalance only, in Point.
	Required, Balance float64

	RetryAfter time.Duration // when to try again; 0 when the server did not say
	Retryable  bool          // whether the same request may succeed later
	RequestID  string        // for the operator of the server
}

// The refusals of the API, to compare with errors.Is. They match by their code.
var (
	ErrBadRequest           = &Error{Code: "bad_request"}
	ErrUnauthorized         = &Error{Code: "unauthorized"}
	ErrInvalidKey           = &Error{Code: "invalid_key"}
	ErrInsufficientBalance  = &Error{Code: "insufficient_balance"}
	ErrAccountNotFound      = &Error{Code: "account_not_found"}
	ErrNotFound             = &Error{Code: "not_found"}
	ErrMethodNotAllowed     = &Error{Code: "method_not_allowed"}
	ErrJobNotReady          = &Error{Code: "job_not_ready"}
	ErrJobFailed            = &Error{Code: "job_failed"}
	ErrFileTooLarge         = &Error{Code: "file_too_large"}
	ErrUnsupportedMediaType = &Error{Code: "unsupported_media_type"}
	ErrMissingImage         = &Error{Code: "missing_image"}
	ErrInvalidImage         = &Error{Code: "invalid_image"}
	ErrInvalidImageURL      = &Error{Code: "invalid_image_url"}
	ErrImageURLUnreachable  = &Error{Code: "image_url_unreachable"}
	ErrInvalidRequest       = &Error{Code: "invalid_request"}
	ErrTooManyJobs          = &Error{Code: "too_many_jobs"}
	ErrQueueError           = &Error{Code: "queue_error"}
	ErrBillingUnavailable   = &Error{Code: "billing_unavailable"}
	ErrUnavailable          = &Error{Code: "unavailable"}

	// ErrUnexpectedAnswer is an answer that is not of the API: a proxy's page,
	// say, or another server's.
	ErrUnexpectedAnswer = &Error{Code: "unexpected_answer"}
)

// Error is the code, the status and the message.
func (e *Error) Error() string {
	s := string(e.Code)
	if e.Status != 0 {
		s += " (" + strconv.Itoa(e.Status) + ")"
	}
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Is says that target is an Error of the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// refusal reads every answer that is no success, before the generated client
// does: that one knows JSON only, and loses the status of a proxy's page.
func refusal(r *http.Response) error {
	if r.StatusCode < 300 {
		return nil
	}
	// What is not read now is lost on purpose: an error is never that long.
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	_ = r.Body.Close()
	if err != nil {
		return fmt.Errorf("%w with status %d: %w", errInterrupted, r.StatusCode, err)
	}
	e := &Error{Status: r.StatusCode, RequestID: r.Header.Get("X-Request-Id"), RetryAfter: retryAfter(r.Header.Get("Retry-After"))}
	switch r.StatusCode {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError,
		http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		e.Retryable = true
	}
	var envelope struct {
		Error struct {
			Code      Code    `json:"code"`
			Message   string  `json:"message"`
			Required  float64 `json:"required"`
			Balance   float64 `json:"balance"`
			Retryable *bool   `json:"retryable"`
		} `json:"error"`
	}
	mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if mediaType != "application/json" || json.Unmarshal(body, &envelope) != nil || envelope.Error.Code == "" {
		e.Code = ErrUnexpectedAnswer.Code
		e.Message = unexpected(r, mediaType)
		return e
	}
	in := envelope.Error
	e.Code, e.Message, e.Required, e.Balance = in.Code, in.Message, in.Required, in.Balance
	if in.Retryable != nil {
		e.Retryable = *in.Retryable
	}
	return e
}

func unexpected(r *http.Response, mediaType string) string {
	if to := r.Header.Get("Location"); r.StatusCode < 400 && to != "" {
		return "The server redirects to " + to + ". If that is the API, use its address as the base URL."
	}
	if mediaType == "" {
		mediaType = "an answer without a type"
	}
	return fmt.Sprintf("%s %s came with %s instead of the API's JSON. Is a proxy in between, or the base URL wrong?",
		strconv.Itoa(r.StatusCode), http.StatusText(r.StatusCode), mediaType)
}

// retryAfter reads seconds, as the API sends them, or a date, as proxies may.
func retryAfter(s string) time.Duration {
	if n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}
