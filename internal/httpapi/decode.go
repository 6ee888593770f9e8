package httpapi

import (
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"

	"github.com/go-faster/jx"
	"github.com/ogen-go/ogen/ogenerrors"
	"github.com/ogen-go/ogen/openapi"

	"pictor/internal/fault"
	"pictor/internal/job"
)

// undecodable turns an error of ogen's decoders into its refusal. It goes by
// the errors' types, never by their text.
func undecodable(r *http.Request, err error) error {
	if param, ok := errors.AsType[*ogenerrors.DecodeParamError](err); ok {
		return badParameter(r, param)
	}
	if f, ok := errors.AsType[*fault.Error](err); ok {
		return f // the body was too large, or broke off
	}
	if _, ok := errors.AsType[*ogenerrors.DecodeRequestError](err); ok {
		return badBody(r, err)
	}
	return fault.Busy(err)
}

func badParameter(r *http.Request, param *ogenerrors.DecodeParamError) error {
	if param.In == openapi.LocationPath {
		return noSuchJob()
	}
	// ogen reads parameters before the body, but the body's media type and
	// syntax are refused before a bad option.
	if r.Method == http.MethodPost {
		if err := beforeOptions(r); err != nil {
			return err
		}
	}
	return fault.Because(fault.InvalidRequest, rule(param.Name), param)
}

// rule says what a parameter may be.
func rule(parameter string) string {
	switch parameter {
	case "wait":
		return "wait must be a whole number of seconds from 0 to 60."
	case "scale":
		return "scale must be 2 or 4."
	case "download":
		return "download must be 1 or true to get an attachment, 0 or false otherwise."
	case "Idempotency-Key":
		return "Idempotency-Key must have 1 to 255 characters."
	default:
		return "The parameter " + parameter + " has a value that is not allowed."
	}
}

// beforeOptions finds what is refused before a bad option: the media type and
// the syntax of the body. That the body is too large comes after the options.
func beforeOptions(r *http.Request) error {
	mediaType, err := checkMediaType(r)
	if err != nil {
		return err
	}
	switch mediaType {
	case "application/json":
		data, err := io.ReadAll(r.Body)
		if err == nil && len(data) > 0 && !jx.Valid(data) {
			return brokenJSON(nil)
		}
		return onlySyntax(err)
	case "multipart/form-data":
		if err := r.ParseMultipartForm(formMemory); err != nil && r.MultipartForm == nil {
			return onlySyntax(brokenForm(r, err))
		}
	}
	return nil
}

// onlySyntax drops an error that is no refusal of the body's syntax.
func onlySyntax(err error) error {
	if errors.Is(err, &fault.Error{Code: fault.BadRequest}) {
		return err
	}
	return nil
}

// checkMediaType returns the accepted media type of the body, "" for a request
// that has neither body nor type.
func checkMediaType(r *http.Request) (string, error) {
	header := r.Header.Get("Content-Type")
	if header == "" && r.ContentLength == 0 {
		return "", nil
	}
	mediaType, _, err := mime.ParseMediaType(header)
	switch mediaType {
	case "multipart/form-data", "application/json", job.PNG, job.JPEG, job.WebP:
		if err == nil {
			return mediaType, nil
		}
	}
	return "", fault.Because(fault.UnsupportedMediaType,
		"Send the image with a Content-Type of multipart/form-data, application/json, image/png, image/jpeg or image/webp.", err)
}

func badBody(r *http.Request, err error) error {
	mediaType, refused := checkMediaType(r)
	if refused != nil {
		return refused
	}
	undecoded, isJSON := errors.AsType[*ogenerrors.DecodeBodyError](err)
	switch {
	case mediaType == "", r.ContentLength == 0, exchangeOf(r.Context()).bodyIsEmpty():
		return missingImage()
	case isJSON && !jx.Valid(undecoded.Body):
		return brokenJSON(err)
	case mediaType == "multipart/form-data" && r.MultipartForm == nil:
		return brokenForm(r, err)
	}
	return fault.Because(fault.InvalidRequest, badFields(mediaType), err)
}

// badFields lists what the body may hold: ogen does not say in a type which
// field it was.
func badFields(mediaType string) string {
	if mediaType == "application/json" {
		return "The body must be a JSON object in which image_url and image_base64 are strings, wait is a whole number from 0 to 60, and scale is 2 or 4."
	}
	return "Send wait, a whole number from 0 to 60, and scale, 2 or 4, at most once each."
}

func brokenJSON(cause error) *fault.Error {
	return fault.Because(fault.BadRequest, "The request body is not valid JSON.", cause)
}

func brokenForm(r *http.Request, cause error) *fault.Error {
	if f, ok := errors.AsType[*fault.Error](cause); ok {
		return f
	}
	if errors.Is(cause, multipart.ErrMessageTooLarge) {
		return fault.TooLarge()
	}
	return fault.Because(fault.BadRequest,
		"The request body is not a valid form. Let your HTTP library set Content-Type, so that it names the boundary it uses.", cause)
}

func missingImage() *fault.Error {
	return fault.New(fault.MissingImage,
		"No image was sent. Send it as the form field `image`, as `image_url` or `image_base64` in JSON, or as the body itself.")
}

func noSuchJob() *fault.Error {
	return fault.New(fault.NotFound, "This account has no job with this id.")
}
