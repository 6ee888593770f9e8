package pictor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	api "pictor/gen"
)

// Result is what Download read.
type Result struct {
	Type string // "image/png", "image/jpeg" or "image/webp"
	Size int64  // bytes
}

// What ended a download: the caller's writer, or the connection.
var (
	errWrite       = errors.New("write the result")
	errInterrupted = errors.New("read the answer")
)

// Download writes the result of a completed job to w. When the connection
// breaks, it goes on where it stopped. After an error, w has the beginning of
// the result or nothing.
func (c *Client) Download(ctx context.Context, id string, w io.Writer) (Result, error) {
	what := "download the result of job " + id
	jobID, err := jobID(id)
	if err != nil {
		return Result{}, fmt.Errorf("pictor: %s: %w", what, err)
	}
	d := &download{w: w}
	_, err = retry(ctx, c, what, func() (struct{}, error) {
		answer, err := c.api.GetJobResult(ctx, api.GetJobResultParams{ID: jobID}, api.WithEditRequest(d.goOn), api.WithEditResponse(d.begin))
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, d.read(raw(answer))
	})
	return Result{Type: d.contentType, Size: d.size}, err
}

func raw(answer api.GetJobResultRes) *http.Response {
	switch a := answer.(type) {
	case *api.GetJobResultOKRawImageJpeg:
		return a.Response
	case *api.GetJobResultOKRawImagePNG:
		return a.Response
	case *api.GetJobResultOKRawImageWEBP:
		return a.Response
	default:
		return nil
	}
}

// download is how far the result has got.
type download struct {
	w           io.Writer
	size        int64 // bytes written
	etag        string
	contentType string
	skip        int64 // bytes of this answer that are written already
}

// goOn asks for the rest only.
func (d *download) goOn(r *http.Request) error {
	if d.size > 0 && d.etag != "" {
		r.Header.Set("Range", "bytes="+strconv.FormatInt(d.size, 10)+"-")
		r.Header.Set("If-Range", d.etag)
	}
	return nil
}

// begin looks at an answer before the generated client does, which does not
// know answers to ranges.
func (d *download) begin(r *http.Response) error {
	etag := r.Header.Get("ETag")
	if d.size > 0 && (d.etag == "" || etag != d.etag) {
		_ = r.Body.Close()
		return errors.New("the result changed while it was downloaded")
	}
	d.skip, d.etag, d.contentType = d.size, etag, r.Header.Get("Content-Type")
	if r.StatusCode == http.StatusPartialContent {
		from := "bytes " + strconv.FormatInt(d.size, 10) + "-"
		if !strings.HasPrefix(r.Header.Get("Content-Range"), from) {
			_ = r.Body.Close()
			return fmt.Errorf("the server sent %q instead of %q", r.Header.Get("Content-Range"), from)
		}
		d.skip, r.StatusCode = 0, http.StatusOK
	}
	return nil
}

func (d *download) read(r *http.Response) error {
	if r == nil {
		return errors.New("the server sent no image")
	}
	defer r.Body.Close()
	if _, err := io.CopyN(io.Discard, r.Body, d.skip); err != nil {
		return fmt.Errorf("%w: %w", errInterrupted, err)
	}
	if _, err := io.Copy(d, r.Body); err != nil && !errors.Is(err, errWrite) {
		return fmt.Errorf("%w: %w", errInterrupted, err)
	} else if err != nil {
		return err
	}
	return nil
}

// Write is io.Writer. It counts, and marks the errors of the caller's writer.
func (d *download) Write(p []byte) (int, error) {
	n, err := d.w.Write(p)
	d.size += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", errWrite, err)
	}
	return n, err
}
