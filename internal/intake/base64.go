package intake

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"strings"

	"pictor/internal/fault"
	"pictor/internal/job"
)

// base64 takes an image as base64 text, plain or in a data: URL.
//
// Line breaks and blanks are skipped, padding may be missing, and the URL-safe
// alphabet is understood: none of these has a second meaning. What a data: URL
// says about the type is not believed.
func (in *Intake) base64(ctx context.Context, task job.Task, s string, take takes) (*Image, error) {
	r, err := openBase64(s)
	if err != nil {
		return nil, noBase64(err)
	}
	return take(ctx, task, r, func(err error) error {
		if ctx.Err() != nil {
			return err
		}
		return noBase64(err)
	})
}

func noBase64(cause error) *fault.Error {
	return fault.Because(fault.InvalidImage, "image_base64 is not base64. Send the bytes of the image in base64, alone or as a data: URL.", cause)
}

// openBase64 reads the bytes that s stands for, without a second copy of s.
func openBase64(s string) (io.Reader, error) {
	s = strings.TrimLeft(s, " \t\r\n")
	if scheme := "data:"; len(s) >= len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
		head, body, ok := strings.Cut(s, ",")
		if !ok {
			return nil, errors.New("data: URL without a comma")
		}
		if !strings.EqualFold(strings.TrimSpace(head[strings.LastIndexByte(head, ';')+1:]), "base64") {
			return nil, errors.New("data: URL that is not base64")
		}
		s = body
	}
	// Strict: the bits that the last character has too many must be zero, so
	// that every image has one spelling.
	return base64.NewDecoder(base64.RawStdEncoding.Strict(), &base64Text{left: s}), nil
}

// base64Text brings base64 into the one form that the decoder knows: standard
// alphabet, no blanks, no padding.
type base64Text struct {
	left          string
	read, padding int // characters so far
}

func (t *base64Text) Read(p []byte) (n int, err error) {
	used := 0
	for ; used < len(t.left) && n < len(p); used++ {
		c := t.left[used]
		switch {
		case c == '\n', c == '\r', c == ' ', c == '\t', c == '\v', c == '\f':
			continue
		case c == '=':
			t.padding++
			continue
		case t.padding > 0:
			return n, errors.New("base64 goes on after its padding")
		case c == '-':
			c = '+'
		case c == '_':
			c = '/'
		}
		p[n] = c
		n++
	}
	t.left = t.left[used:]
	t.read += n
	if t.left != "" {
		return n, nil
	}
	if t.padding > 0 && (t.padding > 2 || (t.read+t.padding)%4 != 0) {
		return n, errors.New("base64 with wrong padding")
	}
	return n, io.EOF
}
