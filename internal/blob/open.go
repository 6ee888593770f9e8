package blob

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/azureblob" // registers azblob://
	"gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/gcsblob" // registers gs://
	"gocloud.dev/blob/memblob"
	_ "gocloud.dev/blob/s3blob" // registers s3://
	"gocloud.dev/gcp"
)

const schemes = "file:///folder, s3://bucket, gs://bucket, azblob://container or mem://"

// Open opens the store that a URL names:
//
//	file:///var/lib/pictor/blobs   a folder, made when it is missing
//	s3://bucket?region=eu-west-1   S3, and with endpoint= and use_path_style=true any server that speaks it
//	gs://bucket                    Google Cloud Storage
//	azblob://container             Azure Blob Storage
//	mem://                         memory of this process, for tests
//
// The parameters are those of the Go CDK's drivers (package s3blob and its
// siblings), prefix=a/ among them: it keeps all keys under a/. Credentials never
// stand in the URL: they come from where the SDK of each cloud looks for them.
// A folder takes fileblob's parameters, such as ?dir_file_mode=0750 (0700 when
// not given).
func Open(ctx context.Context, rawURL string) (*Store, error) {
	u, err := parse(rawURL)
	if err != nil {
		return nil, err
	}
	var s *Store
	switch u.Scheme {
	case "file":
		s, err = openFolder(ctx, u)
	case "mem":
		s = &Store{bucket: memblob.OpenBucket(nil)}
	default:
		s, err = openBucket(ctx, u)
	}
	if err != nil {
		return nil, fmt.Errorf("blob store %s: %w", u.Redacted(), err)
	}
	return s, nil
}

// CheckURL says what is wrong with a URL, as far as that shows without opening
// it.
func CheckURL(rawURL string) error {
	_, err := parse(rawURL)
	return err
}

// IsBucket says that a URL names a bucket, which can sign URLs.
func IsBucket(rawURL string) bool {
	u, err := parse(rawURL)
	return err == nil && u.Scheme != "file" && u.Scheme != "mem"
}

func parse(rawURL string) (*url.URL, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("blob store: no URL") // the cause would repeat what may be a secret
	}
	switch u.Scheme {
	case "file":
		// fileblob ignores the host, so that file://data would mean the root of
		// the disk.
		if u.Host != "" && u.Host != "localhost" && u.Host != "." {
			err = fmt.Errorf("the folder must be absolute, as in file:///%s%s", u.Host, u.Path)
		}
	case "mem":
	case "s3", "gs", "azblob":
		switch {
		case u.Host == "":
			err = fmt.Errorf("want %s://bucket", u.Scheme)
		case u.User != nil:
			err = errors.New("credentials have no place in the URL: give them by the environment or the files of the cloud's SDK")
		}
	default:
		err = fmt.Errorf("want %s", schemes)
	}
	if err != nil {
		return nil, fmt.Errorf("blob store %s: %w", u.Redacted(), err)
	}
	return u, nil
}

func openFolder(ctx context.Context, u *url.URL) (*Store, error) {
	opener := fileblob.URLOpener{Options: fileblob.Options{
		CreateDir:   true,
		DirFileMode: 0o700, // customers' pictures
		// Temporary files beside the final ones: a rename cannot cross file
		// systems, and os.TempDir may be memory.
		NoTempDir: true,
		// A sidecar file is written before its object: a crash between the
		// two would leave it for ever.
		Metadata: fileblob.MetadataDontWrite,
	}}
	bucket, err := opener.OpenBucketURL(ctx, u)
	if err != nil {
		return nil, err
	}
	folder, err := newFolder(u)
	if err != nil {
		return nil, err
	}
	return &Store{bucket: bucket, folder: folder}, nil
}

// openBucket makes no request to the store: one that cannot be reached is for
// Check to find.
func openBucket(ctx context.Context, u *url.URL) (*Store, error) {
	// The tokens of Google's and Azure's credentials are renewed with the
	// context of the opening, which ends when the start of the process does.
	ctx = context.WithoutCancel(ctx)
	if u.Scheme == "gs" && os.Getenv("STORAGE_EMULATOR_HOST") == "" {
		// The driver would print its warning on stdout and go on without.
		if _, err := gcp.DefaultCredentials(ctx); err != nil {
			return nil, err
		}
	}
	bucket, err := blob.OpenBucket(ctx, ofServer(u).String())
	if err != nil {
		return nil, err
	}
	s3, err := newS3Bucket(bucket, u)
	if err != nil {
		_ = bucket.Close()
		return nil, err
	}
	return &Store{bucket: bucket, s3: s3}, nil
}
