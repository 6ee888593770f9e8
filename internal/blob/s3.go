package blob

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/feature/s3/transfermanager"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"gocloud.dev/blob"
)

// abortTimeout bounds the last request about an upload that failed.
const abortTimeout = 10 * time.Second

// s3Bucket does what s3blob leaves out: it ends uploads that broke, whose parts
// are stored and paid for until somebody does.
type s3Bucket struct {
	client       *s3.Client
	name, prefix string
}

// newS3Bucket gives nil for a bucket that is not of S3.
func newS3Bucket(bucket *blob.Bucket, u *url.URL) (*s3Bucket, error) {
	b := &s3Bucket{name: u.Host, prefix: u.Query().Get("prefix")}
	if !bucket.As(&b.client) {
		return nil, nil
	}
	if b.client.Options().Region == "" {
		return nil, errors.New("no region: add ?region= to the URL, or set AWS_REGION; a server of one's own takes any, such as us-east-1")
	}
	return b, nil
}

// ofServer adds to the URL of an S3 server of one's own what the SDK knows of
// Amazon's: that it understands the SDK's newest checksums.
func ofServer(u *url.URL) *url.URL {
	q := u.Query()
	if u.Scheme != "s3" || !q.Has("endpoint") {
		return u
	}
	for _, name := range []string{"request_checksum_calculation", "response_checksum_validation"} {
		if !q.Has(name) {
			q.Set(name, "when_required")
		}
	}
	server := *u
	server.RawQuery = q.Encode()
	return &server
}

// abortOnFailure returns a func that ends the upload if err says that it broke.
// The SDK tries to with the context of the upload, which is over when the
// upload was cancelled.
func (b *s3Bucket) abortOnFailure(ctx context.Context, opt *blob.WriterOptions) func(err error) {
	var upload *transfermanager.UploadObjectInput
	opt.BeforeWrite = func(as func(any) bool) error {
		as(&upload)
		return nil
	}
	return func(err error) {
		var broken transfermanager.MultipartUploadError
		if upload == nil || !errors.As(err, &broken) {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
		defer cancel()
		id := broken.UploadID()
		// One that is ended already, or that cannot be, is left to
		// removeHalfWritten.
		_, _ = b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: upload.Bucket, Key: upload.Key, UploadId: &id})
	}
}

// removeHalfWritten ends the uploads that began before the given time.
func (b *s3Bucket) removeHalfWritten(ctx context.Context, before time.Time) (ended int, err error) {
	uploads := s3.NewListMultipartUploadsPaginator(b.client, &s3.ListMultipartUploadsInput{Bucket: &b.name, Prefix: &b.prefix})
	for uploads.HasMorePages() {
		page, err := uploads.NextPage(ctx)
		if err != nil {
			return ended, fmt.Errorf("list unfinished uploads: %w", err)
		}
		for _, upload := range page.Uploads {
			if upload.Initiated == nil || !upload.Initiated.Before(before) {
				continue
			}
			_, err := b.client.AbortMultipartUpload(ctx, &s3.AbortMultipartUploadInput{Bucket: &b.name, Key: upload.Key, UploadId: upload.UploadId})
			if err != nil {
				return ended, fmt.Errorf("end an unfinished upload: %w", err)
			}
			ended++
		}
	}
	return ended, nil
}

// withoutWarnings keeps the SDK from a line on stderr about every object that a
// server keeps without a checksum.
func withoutWarnings(opt *blob.ReaderOptions) {
	opt.BeforeRead = func(as func(any) bool) error {
		var options *[]func(*s3.Options)
		if as(&options) {
			*options = append(*options, func(o *s3.Options) { o.DisableLogOutputChecksumValidationSkipped = true })
		}
		return nil
	}
}
