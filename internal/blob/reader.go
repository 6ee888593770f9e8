package blob

import (
	"context"
	"errors"
	"fmt"
	"io"

	"gocloud.dev/blob"
)

// reader reads an object of a bucket from where it was sought, in one request
// that is made when the first byte is wanted: who asks for headers or for a
// part does not pay for the whole.
type reader struct {
	ctx    context.Context
	bucket *blob.Bucket
	key    string
	size   int64
	at     int64
	body   *blob.Reader // nil until something is read from at
}

func (r *reader) Read(p []byte) (int, error) {
	if r.at >= r.size {
		return 0, io.EOF
	}
	if r.body == nil {
		opt := new(blob.ReaderOptions)
		withoutWarnings(opt)
		body, err := r.bucket.NewRangeReader(r.ctx, r.key, r.at, -1, opt)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", r.key, known(err))
		}
		r.body = body
	}
	n, err := r.body.Read(p)
	r.at += int64(n)
	return n, err
}

func (r *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning")
	}
	if offset != r.at {
		_ = r.Close() // of a body that is not wanted any more
		r.at = offset
	}
	return offset, nil
}

func (r *reader) Close() error {
	if r.body == nil {
		return nil
	}
	err := r.body.Close()
	r.body = nil
	return err
}
