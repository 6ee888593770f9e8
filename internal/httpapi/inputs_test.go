package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/job"
)

// pictureHost serves pictures at a loopback address that the intake may reach.
func pictureHost(t *testing.T, pictures map[string][]byte) string {
	t.Helper()
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := pictures[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write(data)
	}))
	t.Cleanup(host.Close)
	return host.URL
}

func TestCreate_takes_an_image_in_every_way(t *testing.T) {
	t.Parallel()
	s := start(t)
	png, jpeg, webp := photo(t, "cup.png"), photo(t, "astronaut.jpg"), photo(t, "coffee.webp")
	host := pictureHost(t, map[string][]byte{"/cat.jpg": jpeg})
	inBase64 := base64.StdEncoding.EncodeToString(png)
	image := part{name: "image", file: "cup.png", contentType: "image/png", data: png}
	text := func(name, value string) part { return part{name: name, data: []byte(value)} }
	type row struct {
		name    string
		request func(key string) request
		task    job.Task
		input   string
	}
	for _, row := range []row{
		{"raw PNG", func(k string) request { return upload(k, "/remove-bg", "image/png", png) }, job.RemoveBG, job.PNG},
		{"raw JPEG", func(k string) request { return upload(k, "/upscale", "image/jpeg", jpeg) }, job.Upscale2x, job.JPEG},
		{"raw WebP", func(k string) request { return upload(k, "/upscale?scale=4", "image/webp", webp) }, job.Upscale4x, job.WebP},
		{"content type with a parameter", func(k string) request { return upload(k, "/remove-bg", "image/png; charset=binary", png) }, job.RemoveBG, job.PNG},
		{"content type in capitals", func(k string) request { return upload(k, "/remove-bg", "IMAGE/PNG", png) }, job.RemoveBG, job.PNG},
		{"the bytes decide, not the type", func(k string) request { return upload(k, "/remove-bg", "image/png", jpeg) }, job.RemoveBG, job.JPEG},
		{"form image", func(k string) request { return uploadForm(t, k, "/remove-bg", image) }, job.RemoveBG, job.PNG},
		{"form file", func(k string) request {
			return uploadForm(t, k, "/remove-bg", part{name: "file", file: "a", data: jpeg})
		}, job.RemoveBG, job.JPEG},
		{"form image wins over file", func(k string) request {
			return uploadForm(t, k, "/remove-bg", part{name: "file", file: "a", data: jpeg}, image)
		}, job.RemoveBG, job.PNG},
		{"an empty form image is none", func(k string) request {
			return uploadForm(t, k, "/remove-bg", part{name: "image", file: "a"}, part{name: "file", file: "b", data: jpeg})
		}, job.RemoveBG, job.JPEG},
		{"form options before the image", func(k string) request {
			return uploadForm(t, k, "/upscale", text("scale", "4"), text("wait", "0"), image)
		}, job.Upscale4x, job.PNG},
		{"form options after the image", func(k string) request {
			return uploadForm(t, k, "/upscale", image, text("wait", "0"), text("scale", "4"))
		}, job.Upscale4x, job.PNG},
		{"form options win over the query", func(k string) request { return uploadForm(t, k, "/upscale?scale=4", image, text("scale", "2")) }, job.Upscale2x, job.PNG},
		{"unknown form fields", func(k string) request { return uploadForm(t, k, "/upscale", image, text("model", "best")) }, job.Upscale2x, job.PNG},
		{"JSON base64", func(k string) request { return send(k, "/remove-bg", `{"image_base64": "`+inBase64+`"}`) }, job.RemoveBG, job.PNG},
		{"JSON data URL", func(k string) request {
			return send(k, "/upscale", `{"image_base64": "data:image/gif;base64,`+inBase64+`", "scale": 4}`)
		}, job.Upscale4x, job.PNG},
		{"JSON URL", func(k string) request { return send(k, "/remove-bg", `{"image_url": "`+host+`/cat.jpg"}`) }, job.RemoveBG, job.JPEG},
		{"JSON with an empty second source", func(k string) request {
			return send(k, "/remove-bg", `{"image_url": "", "image_base64": "`+inBase64+`"}`)
		}, job.RemoveBG, job.PNG},
		{"JSON options win over the query", func(k string) request {
			return send(k, "/upscale?scale=4&wait=60", `{"scale": 2, "wait": 0, "image_base64": "`+inBase64+`"}`)
		}, job.Upscale2x, job.PNG},
		{"JSON with a charset and unknown fields", func(k string) request {
			return upload(k, "/remove-bg", "application/json; charset=UTF-8", []byte(`{"more": [1], "image_base64": "`+inBase64+`"}`))
		}, job.RemoveBG, job.PNG},
	} {
		for _, way := range []string{"with a length", "chunked"} {
			t.Run(row.name+" "+way, func(t *testing.T) {
				t.Parallel()
				s := s.in(t)
				account, key := s.account("1")
				r := row.request(key)
				var body io.Reader = bytes.NewReader(r.body)
				if way == "chunked" {
					body = io.MultiReader(body)
				}
				got := s.doBody(r, body)
				got.want(http.StatusAccepted)
				j, err := s.db.Job(t.Context(), account, job.ID(got.job().ID))
				must(t, err)
				if j.Task != row.task || j.Input.Type != row.input {
					t.Errorf("got %s of %s, want %s of %s", j.Task, j.Input.Type, row.task, row.input)
				}
				stored, err := s.store.Open(t.Context(), j.ID.InputKey())
				must(t, err)
				defer stored.Close()
				if stored.Size != j.Input.Size || j.Input.Width == 0 {
					t.Errorf("stored %d bytes of %+v", stored.Size, j.Input)
				}
			})
		}
	}
}

func TestCreate_refuses(t *testing.T) {
	t.Parallel()
	s := start(t)
	png := photo(t, "cup.png")
	inBase64 := base64.StdEncoding.EncodeToString(png)
	image := part{name: "image", file: "cup.png", data: png}
	text := func(name, value string) part { return part{name: name, data: []byte(value)} }
	_, key := s.account("1")
	type row struct {
		name    string
		request request
		status  int
		code    string
	}
	post := func(path, body string, header ...string) request {
		return request{method: http.MethodPost, path: path, header: append(header, "X-Api-Key: "+key), body: []byte(body)}
	}
	for _, row := range []row{
		{"neither body nor type", post("/remove-bg", ""), 422, "missing_image"},
		{"an empty raw body", upload(key, "/remove-bg", "image/png", nil), 422, "missing_image"},
		{"an empty JSON body", send(key, "/remove-bg", ""), 422, "missing_image"},
		{"an empty form body", upload(key, "/remove-bg", "multipart/form-data; boundary=x", nil), 422, "missing_image"},
		{"an empty object", send(key, "/remove-bg", "{}"), 422, "missing_image"},
		{"empty values", send(key, "/remove-bg", `{"image_url": "", "image_base64": ""}`), 422, "missing_image"},
		{"a form without an image", uploadForm(t, key, "/upscale", text("scale", "2")), 422, "missing_image"},
		{"an image as a text field", uploadForm(t, key, "/upscale", text("image", "cat.jpg")), 422, "missing_image"},
		{"an empty data URL", send(key, "/remove-bg", `{"image_base64": "data:image/png;base64,"}`), 422, "missing_image"},
		{"an empty file", uploadForm(t, key, "/upscale", part{name: "image", file: "a"}), 422, "missing_image"},

		{"a body without a type", post("/remove-bg", "x"), 415, "unsupported_media_type"},
		{"a malformed type", upload(key, "/remove-bg", "image", png), 415, "unsupported_media_type"},
		{"a malformed type without a body", post("/remove-bg", "", "Content-Type: ;;"), 415, "unsupported_media_type"},
		{"a malformed parameter", upload(key, "/remove-bg", "image/png; =", png), 415, "unsupported_media_type"},
		{"another image type", upload(key, "/remove-bg", "image/gif", png), 415, "unsupported_media_type"},
		{"no real image type", upload(key, "/remove-bg", "image/jpg", png), 415, "unsupported_media_type"},
		{"any bytes", upload(key, "/remove-bg", "application/octet-stream", png), 415, "unsupported_media_type"},
		{"a web form", upload(key, "/remove-bg", "application/x-www-form-urlencoded", []byte("image_url=x")), 415, "unsupported_media_type"},

		{"broken JSON", send(key, "/remove-bg", `{"image_url": "x"`), 400, "bad_request"},
		{"more after the JSON", send(key, "/remove-bg", `{} {}`), 400, "bad_request"},
		{"no JSON", send(key, "/remove-bg", "image"), 400, "bad_request"},
		{"blanks", send(key, "/remove-bg", "  "), 400, "bad_request"},
		{"a form without a boundary", upload(key, "/remove-bg", "multipart/form-data", png), 400, "bad_request"},
		{"a form that is none", upload(key, "/remove-bg", "multipart/form-data; boundary=x", png), 400, "bad_request"},
		{"a form that breaks off", upload(key, "/remove-bg", "multipart/form-data; boundary=x", []byte("--x\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a\"\r\n\r\nabc")), 400, "bad_request"},

		{"JSON that is no object", send(key, "/remove-bg", `[]`), 422, "invalid_request"},
		{"null", send(key, "/remove-bg", `null`), 422, "invalid_request"},
		{"a number for a string", send(key, "/remove-bg", `{"image_url": 1}`), 422, "invalid_request"},
		{"both sources", send(key, "/remove-bg", `{"image_url": "https://example.com/a", "image_base64": "`+inBase64+`"}`), 422, "invalid_request"},
		{"a wait of 61 in the query", cup(t, key, "/remove-bg?wait=61"), 422, "invalid_request"},
		{"a negative wait", cup(t, key, "/remove-bg?wait=-1"), 422, "invalid_request"},
		{"a wait with a fraction", cup(t, key, "/remove-bg?wait=1.5"), 422, "invalid_request"},
		{"an empty wait", cup(t, key, "/remove-bg?wait="), 422, "invalid_request"},
		{"two waits", cup(t, key, "/remove-bg?wait=1&wait=2"), 422, "invalid_request"},
		{"a wait of 61 in JSON", send(key, "/remove-bg", `{"wait": 61, "image_base64": "`+inBase64+`"}`), 422, "invalid_request"},
		{"a wait as a JSON string", send(key, "/remove-bg", `{"wait": "5", "image_base64": "`+inBase64+`"}`), 422, "invalid_request"},
		{"a wait of 61 in a form", uploadForm(t, key, "/remove-bg", image, text("wait", "61")), 422, "invalid_request"},
		{"a wait that is no number in a form", uploadForm(t, key, "/remove-bg", image, text("wait", "soon")), 422, "invalid_request"},
		{"a bad query beside a good form", uploadForm(t, key, "/remove-bg?wait=61", image, text("wait", "1")), 422, "invalid_request"},
		{"scale 3 in the query", cup(t, key, "/upscale?scale=3"), 422, "invalid_request"},
		{"scale 3 in JSON", send(key, "/upscale", `{"scale": 3, "image_base64": "`+inBase64+`"}`), 422, "invalid_request"},
		{"scale 3 in a form", uploadForm(t, key, "/upscale", image, text("scale", "3")), 422, "invalid_request"},
		{"scale twice in a form", uploadForm(t, key, "/upscale", image, text("scale", "2"), text("scale", "4")), 422, "invalid_request"},
		{"a long Idempotency-Key", cup(t, key, "/remove-bg", "Idempotency-Key: "+strings.Repeat("k", 256)), 422, "invalid_request"},
		{"an empty Idempotency-Key", cup(t, key, "/remove-bg", "Idempotency-Key: "), 422, "invalid_request"},
		{"an Idempotency-Key that is no text", cup(t, key, "/remove-bg", "Idempotency-Key: \xff\xfe"), 422, "invalid_request"},

		{"no base64", send(key, "/remove-bg", `{"image_base64": "%%%"}`), 422, "invalid_image"},
		{"base64 of no image", send(key, "/remove-bg", `{"image_base64": "aGVsbG8="}`), 422, "invalid_image"},
		{"a GIF as PNG", upload(key, "/remove-bg", "image/png", []byte("GIF89a\x01\x00\x01\x00")), 422, "invalid_image"},
		{"a path as URL", send(key, "/remove-bg", `{"image_url": "/cat.jpg"}`), 422, "invalid_image_url"},
		{"a private address", send(key, "/remove-bg", `{"image_url": "http://10.0.0.1/cat.jpg"}`), 422, "invalid_image_url"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s.in(t).do(row.request).refused(row.status, row.code)
		})
	}
	if diff := cmp.Diff("1", string(field(t, s.do(get(key, "/me")).body, "balance"))); diff != "" {
		t.Errorf("a refusal was charged: %s", diff)
	}
}

// Refusals come in the order of the design: key, media type, syntax, options,
// size, image, running jobs, balance. Each request here has the named fault and
// all that come after it.
func TestCreate_refuses_in_the_order_of_the_design(t *testing.T) {
	t.Parallel()
	s := start(t)
	_, poor := s.account("0.7")
	for range job.MaxRunning {
		s.create(poor)
	}
	_, broke := s.account("0.05")
	tooLarge := bytes.Repeat([]byte("x"), job.MaxImageBytes+1)
	badOption := "/upscale?scale=3"
	type row struct {
		name    string
		request request
		status  int
		code    string
	}
	for _, row := range []row{
		{"key", upload("nonsense", badOption, "text/plain", tooLarge), 401, "invalid_key"},
		{"media type", upload(poor, badOption, "text/plain", tooLarge), 415, "unsupported_media_type"},
		{"syntax of JSON", send(poor, badOption, `{"image_url":`), 400, "bad_request"},
		{"syntax of a form", upload(poor, badOption, "multipart/form-data; boundary=x", []byte("--y")), 400, "bad_request"},
		{"options of JSON", send(poor, badOption, `{"image_url": ""}`), 422, "invalid_request"},
		{"options of a raw body", upload(poor, badOption, "image/png", tooLarge), 422, "invalid_request"},
		{"options of a form", uploadForm(t, poor, "/upscale", part{name: "scale", data: []byte("3")}, part{name: "image", file: "a", data: tooLarge}), 422, "invalid_request"},
		{"options of a form in the query", uploadForm(t, poor, badOption, part{name: "image", file: "a", data: tooLarge}), 422, "invalid_request"},
		{"options without a body", request{method: http.MethodPost, path: badOption, header: []string{"X-Api-Key: " + poor}}, 422, "invalid_request"},
		{"size", upload(poor, "/upscale", "image/png", tooLarge), 413, "file_too_large"},
		{"size of a form", uploadForm(t, poor, "/upscale", part{name: "image", file: "a", data: tooLarge}), 413, "file_too_large"},
		{"image", upload(poor, "/upscale", "image/png", []byte("x")), 422, "invalid_image"},
		{"no image", send(poor, "/upscale", `{}`), 422, "missing_image"},
		{"running jobs", cup(t, poor, "/upscale?scale=4"), 429, "too_many_jobs"},
		{"running jobs under a key", cup(t, poor, "/upscale?scale=4", "Idempotency-Key: order"), 429, "too_many_jobs"},
		{"balance", cup(t, broke, "/upscale?scale=4"), 402, "insufficient_balance"},
		{"balance under a key", cup(t, broke, "/upscale?scale=4", "Idempotency-Key: order"), 402, "insufficient_balance"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s.in(t).do(row.request).refused(row.status, row.code)
		})
	}
}
