// Package clients has the client that oapi-codegen writes from the served
// document, and what it must be able to do.
package clients

import (
	"bytes"
	"context"
	"encoding/base64"
	"image"
	_ "image/png"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"testing"
)

func env(t *testing.T, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set: `go tool task clients` sets it", name)
	}
	return value
}

func picture(t *testing.T) []byte {
	t.Helper()
	data, err := os.ReadFile(env(t, "PICTOR_PICTURE"))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func size(t *testing.T, data []byte) image.Point {
	t.Helper()
	config, _, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return image.Pt(config.Width, config.Height)
}

// newClient sends the header with every request.
func newClient(t *testing.T, header, value string) *ClientWithResponses {
	t.Helper()
	client, err := NewClientWithResponses(env(t, "PICTOR_BASE_URL"), WithRequestEditorFn(
		func(_ context.Context, r *http.Request) error {
			r.Header.Set(header, value)
			return nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func formOf(t *testing.T, picture []byte) (contentType string, body io.Reader) {
	t.Helper()
	var buffer bytes.Buffer
	form := multipart.NewWriter(&buffer)
	part, err := form.CreateFormFile("image", "picture.png")
	if err != nil {
		t.Fatal(err)
	}
	part.Write(picture)
	form.WriteField("scale", "2")
	if err := form.Close(); err != nil {
		t.Fatal(err)
	}
	return form.FormDataContentType(), &buffer
}

func TestClient_creates_waits_and_downloads(t *testing.T) {
	picture := picture(t)
	// Each creates a job without waiting for it.
	ways := map[string]func(*ClientWithResponses) (*UpscaleResponse, error){
		"raw": func(c *ClientWithResponses) (*UpscaleResponse, error) {
			return c.UpscaleWithBodyWithResponse(t.Context(), &UpscaleParams{Scale: new(Scale(2))}, "image/png", bytes.NewReader(picture))
		},
		"form": func(c *ClientWithResponses) (*UpscaleResponse, error) {
			contentType, body := formOf(t, picture)
			return c.UpscaleWithBodyWithResponse(t.Context(), nil, contentType, body)
		},
		"JSON": func(c *ClientWithResponses) (*UpscaleResponse, error) {
			text := base64.StdEncoding.EncodeToString(picture)
			return c.UpscaleWithResponse(t.Context(), nil, UpscaleInput{ImageBase64: &text, Scale: new(Scale(2))})
		},
	}
	key := env(t, "PICTOR_API_KEY")
	for header, value := range map[string]string{"Authorization": "Bearer " + key, "X-Api-Key": key} {
		for way, create := range ways {
			t.Run(way+" with "+header, func(t *testing.T) {
				client := newClient(t, header, value)
				created, err := create(client)
				if err != nil {
					t.Fatal(err)
				}
				if created.JSON202 == nil {
					t.Fatalf("create: %s %s", created.Status(), created.Body)
				}
				if got := created.JSON202.Billing.Cost; got != 0.1 {
					t.Errorf("it cost %v Point, want 0.1", got)
				}

				job, err := client.GetJobWithResponse(t.Context(), created.JSON202.Id, &GetJobParams{Wait: new(60)})
				if err != nil {
					t.Fatal(err)
				}
				if job.JSON200 == nil || job.JSON200.Status != Completed {
					t.Fatalf("wait: %s %s", job.Status(), job.Body)
				}

				result, err := client.GetJobResultWithResponse(t.Context(), created.JSON202.Id, nil)
				if err != nil {
					t.Fatal(err)
				}
				if want, got := size(t, picture).Mul(2), size(t, result.Body); got != want {
					t.Errorf("the result is %v, want %v", got, want)
				}
			})
		}
	}
}

// A refusal is sent while the client still uploads: it must get to see it, and
// not a connection that was reset.
func TestClient_sees_a_refusal_before_its_upload_ends(t *testing.T) {
	for code, key := range map[string]string{"file_too_large": env(t, "PICTOR_API_KEY"), "invalid_key": "pictor_nonsense"} {
		t.Run(code, func(t *testing.T) {
			client := newClient(t, "X-Api-Key", key)
			answer, err := client.UpscaleWithBodyWithResponse(t.Context(), nil, "image/png", bytes.NewReader(make([]byte, 48<<20)))
			if err != nil {
				t.Fatal(err)
			}
			refusal := answer.JSON413
			if code == "invalid_key" {
				refusal = answer.JSON401
			}
			if refusal == nil || refusal.Error.Code != code {
				t.Errorf("got %s %s", answer.Status(), answer.Body)
			}
		})
	}
}
