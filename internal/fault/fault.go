// Package fault is the closed list of refusals that a client can meet.
//
// A stage or tool that refuses a request returns an *Error with one Code.
// Message is written for the client; the cause behind it is only for the log.
// Wrapping an *Error with fmt.Errorf("...: %w", err) keeps it: As finds it at
// the edge, and what the wrapping added goes to the log, never to the client.
// Every other error is, for the client, Unavailable. The HTTP status of a code
// is decided in internal/httpapi alone.
package fault

import (
	"errors"
	"time"

	"pictor/internal/point"
)

// Code names a refusal in the API's error envelope.
type Code string

// The codes, in the order of their HTTP statuses.
const (
	BadRequest           Code = "bad_request"            // the body is no JSON, or no form
	Unauthorized         Code = "unauthorized"           // no key
	InvalidKey           Code = "invalid_key"            // malformed, unknown or revoked key
	InsufficientBalance  Code = "insufficient_balance"   // fewer Point than the task costs
	AccountNotFound      Code = "account_not_found"      // the key's account was deleted
	NotFound             Code = "not_found"              // no such path, or no such job of this account
	MethodNotAllowed     Code = "method_not_allowed"     // the path has no such method
	JobNotReady          Code = "job_not_ready"          // no result yet
	JobFailed            Code = "job_failed"             // there will be no result
	FileTooLarge         Code = "file_too_large"         // more than job.MaxImageBytes
	UnsupportedMediaType Code = "unsupported_media_type" // Content-Type
	MissingImage         Code = "missing_image"          // no image in the request
	InvalidImage         Code = "invalid_image"          // no picture that can be worked on
	InvalidImageURL      Code = "invalid_image_url"      // no absolute public http(s) URL
	ImageURLUnreachable  Code = "image_url_unreachable"  // the download failed
	InvalidRequest       Code = "invalid_request"        // an option is out of its range
	TooManyJobs          Code = "too_many_jobs"          // job.MaxRunning are running
	QueueError           Code = "queue_error"            // not queued; nothing is charged
	BillingUnavailable   Code = "billing_unavailable"    // the database could not charge
	Unavailable          Code = "unavailable"            // any other failure of ours
)

// Codes lists every code.
func Codes() []Code {
	return []Code{
		BadRequest, Unauthorized, InvalidKey, InsufficientBalance, AccountNotFound, NotFound, MethodNotAllowed,
		JobNotReady, JobFailed, FileTooLarge, UnsupportedMediaType, MissingImage, InvalidImage, InvalidImageURL,
		ImageURLUnreachable, InvalidRequest, TooManyJobs, QueueError, BillingUnavailable, Unavailable,
	}
}

// Error is a refusal.
type Error struct {
	Code    Code
	Message string // a sentence for the client

	// Of InsufficientBalance only.
	Required, Balance point.Amount

	// RetryAfter is when the same request may succeed; 0 when time alone does
	// not help.
	RetryAfter time.Duration

	cause error
}

// New makes a refusal that waiting does not cure.
func New(code Code, message string) *Error { return &Error{Code: code, Message: message} }

// Because is New with the cause for the log.
func Because(code Code, message string, cause error) *Error {
	return &Error{Code: code, Message: message, cause: cause}
}

// Balance refuses a request that costs more than the account has.
func Balance(required, balance point.Amount) *Error {
	return &Error{
		Code:     InsufficientBalance,
		Message:  "This image costs " + required.String() + " Point, and the balance is " + balance.String() + " Point. Add Point, then send the request again.",
		Required: required,
		Balance:  balance,
	}
}

// Running refuses a request of an account that runs as many jobs as it may.
func Running() *Error {
	return &Error{
		Code:       TooManyJobs,
		Message:    "This account already runs 5 jobs, the most it may at a time. Send the request again when one of them has finished.",
		RetryAfter: 3 * time.Second,
	}
}

// TooLarge refuses an image of more than job.MaxImageBytes.
func TooLarge() *Error {
	return New(FileTooLarge, "The image is larger than 20 MB (20,971,520 bytes). Send a smaller one.")
}

// Queue refuses a request whose job could not be queued; its charge was taken
// back.
func Queue(cause error) *Error {
	return &Error{
		Code:       QueueError,
		Message:    "The job could not be queued, and nothing was charged. Send the request again.",
		RetryAfter: 2 * time.Second,
		cause:      cause,
	}
}

// Billing says that the account or the charge could not be read or written.
func Billing(cause error) *Error {
	return &Error{
		Code:       BillingUnavailable,
		Message:    "The billing service cannot be reached at the moment. Send the request again with the same Idempotency-Key.",
		RetryAfter: 5 * time.Second,
		cause:      cause,
	}
}

// Busy says that something of ours failed.
func Busy(cause error) *Error {
	return &Error{
		Code:       Unavailable,
		Message:    "The service cannot answer at the moment. Send the request again.",
		RetryAfter: 5 * time.Second,
		cause:      cause,
	}
}

func (e *Error) Error() string {
	if e.cause != nil {
		return string(e.Code) + ": " + e.cause.Error()
	}
	return string(e.Code) + ": " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// Is says that target is an Error of the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Retryable says whether the same request may succeed later, and whether that
// is known.
func (e *Error) Retryable() (retryable, known bool) {
	switch e.Code {
	case JobNotReady, TooManyJobs, QueueError, BillingUnavailable, Unavailable:
		return true, true
	case JobFailed:
		return false, true
	}
	return false, false
}

// From finds the refusal in err. An error that holds none becomes Busy with
// err as its cause.
func From(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return Busy(err)
}
