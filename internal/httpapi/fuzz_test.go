package httpapi_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"pictor/internal/fault"
)

// FuzzCreate sends any body under any type and options, for an account that can
// pay for nothing. Whatever it is, it is refused as the client's mistake, in the
// envelope.
func FuzzCreate(f *testing.F) {
	s := start(f)
	_, key := s.account("0")
	png := photo(f, "cup.png")
	for _, seed := range []struct{ contentType, query, body string }{
		{"image/png", "wait=0", string(png)},
		{"image/webp", "scale=4", "RIFF\x00\x00\x00\x00WEBP"},
		{"IMAGE/JPEG; q=1", "", "\xff\xd8\xff\xe0"},
		{"application/json", "scale=2", `{"image_base64": "data:image/png;base64,iVBORw0KGgo=", "wait": 0, "scale": 4}`},
		{"application/json", "", `{"image_base64": "\u0069VBO\r\n", "wait": 1e1, "scale": null, "more": [{}]}`},
		{"application/json; charset=utf-8", "wait=%zz", `{"image_url": ""}`},
		{"multipart/form-data; boundary=x", "", "--x\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a\"\r\n\r\nabc\r\n--x\r\nContent-Disposition: form-data; name=\"wait\"\r\n\r\n0\r\n--x--\r\n"},
		{"multipart/form-data; boundary=x", "scale=2&scale=4", "--x\r\nContent-Disposition: form-data; name=file; filename*=UTF-8''a\r\nContent-Transfer-Encoding: base64\r\n\r\n\r\n--x--"},
		{"multipart/form-data", "", "--\r\n"},
		{"text/plain", "wait", "x"},
		{"", "", ""},
	} {
		f.Add(seed.contentType, seed.query, []byte(seed.body))
	}
	allowed := []int{
		http.StatusBadRequest, http.StatusPaymentRequired, http.StatusRequestEntityTooLarge,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity,
	}
	f.Fuzz(func(t *testing.T, contentType, query string, body []byte) {
		if downloads(body) {
			return
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/v1/upscale", bytes.NewReader(body))
		r.URL.RawQuery = query
		r.Header.Set("X-Api-Key", key)
		r.Header.Set("Content-Type", contentType)
		w := httptest.NewRecorder()
		s.api.ServeHTTP(w, r)
		if !slices.Contains(allowed, w.Code) {
			t.Fatalf("%d: %s", w.Code, w.Body)
		}
		var envelope struct{ Error errorBody }
		if err := json.Unmarshal(w.Body.Bytes(), &envelope); err != nil || !slices.Contains(fault.Codes(), fault.Code(envelope.Error.Code)) {
			t.Fatalf("no envelope: %v %s", err, w.Body)
		}
		if strings.Contains(envelope.Error.Message, "pictor/") || strings.Contains(envelope.Error.Message, ".go:") {
			t.Errorf("the message shows our inside: %s", envelope.Error.Message)
		}
	})
}

// downloads says that a body would make the intake dial an address.
func downloads(body []byte) bool {
	var fields map[string]any
	return json.Unmarshal(body, &fields) == nil && fields["image_url"] != nil && fields["image_url"] != ""
}
