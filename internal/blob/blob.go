// Package blob keeps image bytes by key: `in/<job>` and `out/<job>/<fence>`.
//
// An object is there whole or not at all: a Put that fails, is cancelled or
// dies with its process leaves no object. Objects are never changed, only
// written once and deleted. When Put returns nil the bytes survive a power
// failure as far as the store can promise it (a folder syncs the file and its
// directories).
//
// The package knows gocloud.dev/blob and nothing of jobs. Called by admission,
// work, sweep, httpapi, results and `pictor doctor`.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"google.golang.org/api/googleapi"
)

// ErrNotFound says that no object has the key.
var ErrNotFound = errors.New("no such object")

// Store is a place for objects. It is safe for concurrent use.
type Store struct {
	bucket *blob.Bucket
	folder *folder   // nil unless the store is a folder
	s3     *s3Bucket // nil unless it is a bucket of S3
}

// Close releases the store. No object may be open any more.
func (s *Store) Close() error { return s.bucket.Close() }

// Put stores all of r under the key. On an error there is no object; only a
// bucket whose answer was lost may hold one, and that whole.
func (s *Store) Put(ctx context.Context, key, contentType string, r io.Reader) error {
	if err := checkKey(key); err != nil {
		return err
	}
	put := s.upload
	if s.folder != nil {
		put = s.write
	}
	// Closing a writer publishes what it holds, unless its context was
	// cancelled before.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	source := &source{ctx: ctx, cancel: cancel, r: r}
	if err := put(ctx, key, &blob.WriterOptions{ContentType: contentType}, source); err != nil {
		return fmt.Errorf("store %s: %w", key, source.reason(err))
	}
	return nil
}

// upload is Put into a bucket. Only Upload does: azureblob's writer panics when
// it is closed while what was written to it is refused.
func (s *Store) upload(ctx context.Context, key string, opt *blob.WriterOptions, r io.Reader) error {
	failed := func(error) {}
	if s.s3 != nil {
		failed = s.s3.abortOnFailure(ctx, opt)
	}
	err := s.bucket.Upload(ctx, key, r, opt)
	if err != nil {
		failed(err)
	}
	return err
}

// write is Put into a folder.
func (s *Store) write(ctx context.Context, key string, opt *blob.WriterOptions, r io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sync := s.folder.syncOnClose(opt, key)
	w, err := s.bucket.NewWriter(ctx, key, opt)
	for try := 0; try < 3 && gcerrors.Code(err) == gcerrors.NotFound; try++ {
		// A Delete removed the directory between its creation and that of
		// the file in it.
		w, err = s.bucket.NewWriter(ctx, key, opt)
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	if err == nil {
		err = sync()
	}
	if err != nil {
		cancel()
		_ = w.Close() // only cleans up: err says what happened
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	if err := s.folder.syncDirs(key); err != nil {
		_ = s.bucket.Delete(context.WithoutCancel(ctx), key)
		return err
	}
	return nil
}

// source is what a Put reads. It ends when the context does, and it ends the
// context when it fails: some drivers close what they have after an error, and
// would publish it.
type source struct {
	ctx    context.Context
	cancel context.CancelFunc
	r      io.Reader
	failed error
}

func (s *source) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.failed = err
		s.cancel()
	}
	return n, err
}

// reason is why a Put that gave err failed.
func (s *source) reason(err error) error {
	if s.failed != nil {
		return s.failed
	}
	if ended := s.ctx.Err(); ended != nil && !errors.Is(err, ended) {
		return fmt.Errorf("%w: %w", ended, err)
	}
	return err
}

// Object is an open object. Seeking is cheap: it costs a request to the store
// only when a read follows.
type Object struct {
	io.ReadSeekCloser

	Size        int64
	ContentType string // a folder keeps no types and tells them from the bytes
	ModTime     time.Time
	ETag        string // quoted and strong, as in HTTP
}

// Open opens an object. It gives ErrNotFound when there is none; the context
// holds until the object is closed.
func (s *Store) Open(ctx context.Context, key string) (*Object, error) {
	if err := checkKey(key); err != nil {
		return nil, err
	}
	object, err := s.open(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", key, known(err))
	}
	return object, nil
}

func (s *Store) open(ctx context.Context, key string) (*Object, error) {
	attributes, err := s.bucket.Attributes(ctx, key)
	if err != nil {
		return nil, err
	}
	object := &Object{
		ReadSeekCloser: &reader{ctx: ctx, bucket: s.bucket, key: key, size: attributes.Size},
		Size:           attributes.Size,
		ContentType:    attributes.ContentType,
		ModTime:        attributes.ModTime,
		ETag:           quoted(attributes.ETag),
	}
	if s.folder == nil {
		return object, nil
	}
	// A file that is open can be read to its end whoever deletes it.
	r, err := s.bucket.NewReader(ctx, key, nil)
	if err != nil {
		return nil, err
	}
	object.ReadSeekCloser = r
	if object.ContentType, err = contentType(r); err != nil {
		_ = r.Close()
		return nil, err
	}
	return object, nil
}

// SignedURL is where everybody may read the object for as long, past Pictor. It
// holds for GET alone, and names the key. A folder has none.
func (s *Store) SignedURL(ctx context.Context, key string, lifetime time.Duration) (string, error) {
	if err := checkKey(key); err != nil {
		return "", err
	}
	signed, err := s.bucket.SignedURL(ctx, key, &blob.SignedURLOptions{Expiry: lifetime})
	if err != nil {
		return "", fmt.Errorf("sign a URL of %s: %w", key, err)
	}
	return signed, nil
}

func contentType(r io.ReadSeeker) (string, error) {
	head := make([]byte, 512)
	n, err := io.ReadFull(r, head)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return "", err
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	return http.DetectContentType(head[:n]), nil
}

func quoted(etag string) string {
	if etag == "" || strings.HasSuffix(etag, `"`) {
		return etag
	}
	return `"` + etag + `"`
}

// Delete removes an object. A missing one is no error.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := checkKey(key); err != nil {
		return err
	}
	if err := s.bucket.Delete(ctx, key); err != nil && !missing(err) {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	if s.folder != nil {
		s.folder.prune(key)
	}
	return nil
}

// List calls fn for every object whose key begins with prefix, in no
// particular order. Objects that come or go meanwhile may be missed. fn may
// delete what it is given; its error ends the listing and is returned.
func (s *Store) List(ctx context.Context, prefix string, fn func(key string, modTime time.Time, size int64) error) error {
	if s.folder != nil {
		return s.folder.list(ctx, prefix, fn)
	}
	objects := s.bucket.List(&blob.ListOptions{Prefix: prefix})
	for {
		object, err := objects.Next(ctx)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		if err := fn(object.Key, object.ModTime, object.Size); err != nil {
			return err
		}
	}
}

// RemoveHalfWritten deletes what processes that died in the middle of a Put
// before the given time left behind, and returns how much that was. Folders and
// S3 keep it for ever; other stores clean up by themselves.
func (s *Store) RemoveHalfWritten(ctx context.Context, before time.Time) (int, error) {
	switch {
	case s.folder != nil:
		return s.folder.removeHalfWritten(ctx, before)
	case s.s3 != nil:
		return s.s3.removeHalfWritten(ctx, before)
	default:
		return 0, nil
	}
}

// Check writes, reads and deletes an object of its own.
func (s *Store) Check(ctx context.Context) error {
	key, want := "probe/"+uuid.NewString(), "pictor"
	if err := s.Put(ctx, key, "text/plain", strings.NewReader(want)); err != nil {
		return err
	}
	object, err := s.Open(ctx, key)
	if err != nil {
		return err
	}
	got, err := io.ReadAll(object)
	_ = object.Close()
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	if string(got) != want {
		return fmt.Errorf("read %s: %q is not the %q that was written", key, got, want)
	}
	return s.Delete(ctx, key)
}

// known turns the library's error for a missing object into ours.
func known(err error) error {
	if missing(err) {
		return ErrNotFound
	}
	return err
}

// missing takes no refusal for it: gcsblob says "not found" of everything that
// its key may not touch, and the deletion of a customer's picture that was
// refused must not count as done.
func missing(err error) bool {
	var refused *googleapi.Error
	return gcerrors.Code(err) == gcerrors.NotFound && (!errors.As(err, &refused) || refused.Code != http.StatusForbidden)
}

// checkKey keeps keys to what every store writes unchanged and to what no
// folder takes for one of its own files.
func checkKey(key string) error {
	if len(key) > 512 || strings.HasSuffix(key, halfWritten) || strings.HasSuffix(key, ".attrs") {
		return fmt.Errorf("blob key %.40q is not allowed", key)
	}
	for _, part := range strings.Split(key, "/") {
		plain := strings.IndexFunc(part, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
		}) < 0
		if part == "" || strings.HasPrefix(part, ".") || !plain {
			return fmt.Errorf("blob key %.40q is not allowed", key)
		}
	}
	return nil
}
