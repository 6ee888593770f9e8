package pictor

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
)

// maxImageBytes is the largest image that any server takes.
const maxImageBytes = 20 << 20

// Image is where an image comes from: File, Bytes, Reader or URL.
type Image struct {
	url  string
	load func() (*upload, error)
}

// File is the image in a file. It is read once for each attempt to send it.
func File(path string) Image {
	return Image{load: func() (*upload, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return Reader(f).load() // a pipe can be read only once
		}
		open := func() (io.ReadCloser, error) { return os.Open(path) }
		return newUpload(f, info.Size(), open)
	}}
}

// Bytes is an image in memory.
func Bytes(b []byte) Image {
	return Image{load: func() (*upload, error) {
		open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
		return newUpload(bytes.NewReader(b), int64(len(b)), open)
	}}
}

// Reader is an image that can be read once. It is held in memory, up to the
// largest size that a server takes, so that it can be sent again.
func Reader(r io.Reader) Image {
	return Image{load: func() (*upload, error) {
		b, err := io.ReadAll(io.LimitReader(r, maxImageBytes+1))
		if err != nil {
			return nil, fmt.Errorf("read the image: %w", err)
		}
		return Bytes(b).load()
	}}
}

// URL is an image that the server downloads; the URL must be public.
func URL(url string) Image { return Image{url: url} }

// prepare returns nil for an image that is not uploaded.
func (i Image) prepare() (*upload, error) {
	if i.load == nil {
		return nil, nil
	}
	return i.load()
}

// upload is the body of a request. The generated client would send it in
// chunks, without a length, and could not send it again.
type upload struct {
	contentType string
	size        int64
	open        func() (io.ReadCloser, error)
}

func newUpload(r io.Reader, size int64, open func() (io.ReadCloser, error)) (*upload, error) {
	head := make([]byte, 512)
	n, err := io.ReadFull(r, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	u := &upload{contentType: http.DetectContentType(head[:n]), size: size, open: open}
	switch u.contentType {
	case "image/png", "image/jpeg", "image/webp":
	default:
		// The server looks at the bytes itself, and says best what is wrong.
		u.contentType = "image/png"
	}
	return u, nil
}

// attach makes the upload the body of a request.
func (u *upload) attach(r *http.Request) error {
	body, err := u.open()
	if err != nil {
		return fmt.Errorf("read the image: %w", err)
	}
	r.Header.Set("Content-Type", u.contentType)
	r.Body, r.GetBody, r.ContentLength = body, u.open, u.size
	if u.size == 0 {
		_ = body.Close()
		r.Body, r.GetBody = http.NoBody, nil
	}
	return nil
}
