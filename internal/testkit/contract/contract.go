// Package contract holds every response that a test provokes against
// openapi.json: its status, its headers and its body.
package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"pictor/openapi"
)

// Transport is an http.RoundTripper that fails the test at a response that the
// contract does not allow.
type Transport struct {
	t        testing.TB
	next     http.RoundTripper
	document *openapi3.T
}

// NewTransport wraps next.
func NewTransport(t testing.TB, next http.RoundTripper) *Transport {
	t.Helper()
	loader := openapi3.NewLoader()
	document, err := loader.LoadFromData(openapi.Document)
	if err != nil {
		t.Fatal(err)
	}
	// Images are checked by their status, headers and type; their bytes are
	// nothing to decode.
	for _, imageType := range []string{"image/png", "image/jpeg", "image/webp"} {
		openapi3filter.RegisterBodyDecoder(imageType, openapi3filter.FileBodyDecoder)
	}
	return &Transport{t, next, document}
}

// RoundTrip is http.RoundTripper.
func (c *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil {
		// Cut off: the test is to see what a client sees.
		response.Body = io.NopCloser(io.MultiReader(bytes.NewReader(data), failing{err}))
		return response, nil
	}
	response.Body = io.NopCloser(bytes.NewReader(data))
	if err := c.check(r, response, data); err != nil {
		c.t.Errorf("%s %s answered %d, which the contract does not allow: %v\n%s", r.Method, r.URL, response.StatusCode, err, head(data))
	}
	return response, nil
}

func (c *Transport) check(r *http.Request, response *http.Response, data []byte) error {
	for _, name := range []string{"X-Request-Id", "Access-Control-Allow-Origin", "Access-Control-Expose-Headers"} {
		if response.Header.Get(name) == "" {
			return fmt.Errorf("no %s", name)
		}
	}
	path, item := c.find(r.URL.Path)
	if r.Method == http.MethodOptions {
		return nil
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var operation *openapi3.Operation
	if item != nil {
		operation = item.GetOperation(method)
	}
	if operation == nil {
		return c.checkUnknown(response, data, r.Method == http.MethodHead)
	}
	// `default` covers anything; only conditions that the contract does not
	// name may use it.
	if operation.Responses.Status(response.StatusCode) == nil && response.StatusCode != http.StatusPreconditionFailed {
		return fmt.Errorf("the status is not listed for %s", operation.OperationID)
	}
	request := r.Clone(context.Background())
	request.Method = method
	return openapi3filter.ValidateResponse(context.Background(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: request,
			Route:   &routers.Route{Spec: c.document, Path: path, PathItem: item, Method: method, Operation: operation},
		},
		Status:  response.StatusCode,
		Header:  response.Header,
		Body:    io.NopCloser(bytes.NewReader(data)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: r.Method == http.MethodHead},
	})
}

// checkUnknown checks the answer at a path or method that the contract does not
// have: it is the error envelope all the same.
func (c *Transport) checkUnknown(response *http.Response, data []byte, noBody bool) error {
	if !slices.Contains([]int{http.StatusNotFound, http.StatusMethodNotAllowed}, response.StatusCode) {
		return fmt.Errorf("want 404 or 405")
	}
	if noBody {
		return nil
	}
	var body any
	if err := json.Unmarshal(data, &body); err != nil {
		return err
	}
	return c.document.Components.Schemas["Error"].Value.VisitJSON(body, openapi3.EnableJSONSchema2020(), openapi3.VisitAsResponse())
}

// find returns the contract's path for the path of a URL.
func (c *Transport) find(path string) (string, *openapi3.PathItem) {
	_, path, ok := strings.Cut(path, openapi.Prefix)
	if !ok {
		return "", nil
	}
	got := strings.Split(path, "/")
	for template, item := range c.document.Paths.Map() {
		want := strings.Split(template, "/")
		if slices.EqualFunc(want, got, func(w, g string) bool { return w == g || strings.HasPrefix(w, "{") }) {
			return template, item
		}
	}
	return "", nil
}

func head(data []byte) string { return string(data[:min(len(data), 2000)]) }

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
