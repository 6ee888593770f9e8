// Package intake makes one checked image of whatever a client sends: bytes,
// base64 or a URL.
//
// The bytes go to an unlinked temporary file while they are counted and
// hashed, so that no upload is held in memory and none outlives its request or
// its process. Whatever envelope it came in, an image has at most
// job.MaxImageBytes and is then judged by what its header shows; nothing is
// decoded here. Refusals are *fault.Error, any other error is ours: a full
// disk, say.
package intake

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/tempfile"
	"pictor/internal/vips"
)

// Config of an Intake. The zero value is fit for production.
type Config struct {
	// Dir holds the temporary files, each at most job.MaxImageBytes; empty for
	// the system's. It should be on a disk: where it is memory, uploads are.
	Dir string

	// Allow lists addresses that image_url may reach although they are not
	// public.
	Allow []netip.Prefix

	// Resolver, Roots and URLTimeout are the system's resolver, the system's
	// certificate authorities and job.URLTimeout when not given.
	Resolver   *net.Resolver
	Roots      *x509.CertPool
	URLTimeout time.Duration
}

// Intake reads images. It is safe for concurrent use.
type Intake struct {
	dir        string
	guard      *guard
	client     *http.Client
	urlTimeout time.Duration
}

// New makes an Intake, and fails when it could not store an image.
func New(c Config) (*Intake, error) {
	in := &Intake{dir: c.Dir, guard: newGuard(c.Allow), urlTimeout: c.URLTimeout}
	if in.urlTimeout == 0 {
		in.urlTimeout = job.URLTimeout
	}
	in.client = in.newClient(c.Resolver, c.Roots)
	f, err := in.tempFile()
	if err != nil {
		return nil, err
	}
	return in, f.Close()
}

// Image is an image that was accepted. Close removes its bytes.
type Image struct {
	job.Image
	SHA256 [sha256.Size]byte // of the bytes

	file *os.File
}

// Reader reads the bytes from their beginning. Readers are independent of each
// other and end with Close.
func (i *Image) Reader() io.ReadSeeker { return io.NewSectionReader(i.file, 0, i.Size) }

// Close frees the disk space.
func (i *Image) Close() error { return i.file.Close() }

// Source is where an image is: exactly one of the three.
type Source struct {
	URL    string
	Base64 string    // plain or in a data: URL
	Bytes  io.Reader // a raw body or the file of a form
}

// Take takes an image.
func (in *Intake) Take(ctx context.Context, task job.Task, s Source) (*Image, error) {
	return in.from(ctx, task, s, in.take)
}

// from opens the source and has its bytes taken, or looked at.
func (in *Intake) from(ctx context.Context, task job.Task, s Source, take takes) (*Image, error) {
	switch {
	case s.URL != "":
		return in.url(ctx, task, s.URL, take)
	case s.Base64 != "":
		return in.base64(ctx, task, s.Base64, take)
	case s.Bytes != nil:
		return take(ctx, task, s.Bytes, unreadable)
	}
	return nil, missing()
}

// takes is in.take or in.glance. refuse says what an error of the reader means
// for the client.
type takes func(ctx context.Context, task job.Task, r io.Reader, refuse func(error) error) (*Image, error)

// unreadable says what an error of a request's body means for the client.
func unreadable(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fault.Because(fault.BadRequest, "The request ended before all of its image had arrived. Send it again.", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.Because(fault.BadRequest, "The image arrived too slowly. Send it again.", err)
	}
	return fmt.Errorf("read an image: %w", err)
}

// take spools, measures and checks.
func (in *Intake) take(ctx context.Context, task job.Task, r io.Reader, refuse func(error) error) (*Image, error) {
	f, err := in.tempFile()
	if err != nil {
		return nil, err
	}
	image := &Image{file: f}
	if err := image.spool(ctx, r); err != nil {
		_ = f.Close()
		var broken *sourceError
		if errors.As(err, &broken) {
			return nil, refuse(broken.cause)
		}
		return nil, err
	}
	if err := image.check(task); err != nil {
		_ = f.Close()
		return nil, err
	}
	return image, nil
}

func (in *Intake) tempFile() (*os.File, error) {
	f, err := tempfile.Unnamed(in.dir, "pictor-image-")
	if err != nil {
		return nil, fmt.Errorf("temporary file for an image: %w", err)
	}
	return f, nil
}

// sourceError is an error of the reader, not of our disk.
type sourceError struct{ cause error }

func (e *sourceError) Error() string { return e.cause.Error() }

func (i *Image) spool(ctx context.Context, r io.Reader) error {
	hash := sha256.New()
	buffer := make([]byte, 64<<10)
	for {
		if err := ctx.Err(); err != nil {
			return &sourceError{err}
		}
		n, err := r.Read(buffer)
		if i.Size += int64(n); i.Size > job.MaxImageBytes {
			return fault.TooLarge()
		}
		hash.Write(buffer[:n])
		if _, err := i.file.Write(buffer[:n]); err != nil {
			return fmt.Errorf("store an image for now: %w", err)
		}
		var limit *http.MaxBytesError
		switch {
		case err == io.EOF:
			hash.Sum(i.SHA256[:0])
			return nil
		case errors.As(err, &limit):
			return fault.TooLarge()
		case err != nil:
			return &sourceError{err}
		}
	}
}

// check fills in what the header shows, or refuses the image because of it.
// The file is mapped and not read, which keeps it out of the heap.
func (i *Image) check(task job.Task) error {
	if i.Size == 0 {
		return missing()
	}
	b, err := syscall.Mmap(int(i.file.Fd()), 0, int(i.Size), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map an image of %d bytes: %w", i.Size, err)
	}
	defer syscall.Munmap(b)

	if _, ok := vips.Sniff(b[:min(len(b), vips.SniffLen)]); !ok {
		return fault.New(fault.InvalidImage, "The image is not in a supported format. Send a PNG, JPEG or WebP file.")
	}
	header, err := vips.ReadHeader(b)
	var bad *vips.Error
	if errors.As(err, &bad) {
		return fault.Because(fault.InvalidImage, bad.Message, err)
	}
	if err != nil {
		return fmt.Errorf("read the header of an image: %w", err)
	}
	i.Type, i.Width, i.Height = header.Type, header.Width, header.Height
	return suits(header, task)
}

func suits(h vips.Header, task job.Task) error {
	size := strconv.Itoa(h.Width) + " x " + strconv.Itoa(h.Height) + " pixels"
	switch side := task.MaxSide(); {
	case h.Width <= 0 || h.Height <= 0:
		return fault.New(fault.InvalidImage, "The image has no pixels.")
	case h.Frames != 1:
		return fault.New(fault.InvalidImage, "The image is animated: it has "+strconv.Itoa(h.Frames)+" frames. Send a single picture.")
	case int64(h.Width)*int64(h.Height) > job.MaxImagePixels:
		return fault.New(fault.InvalidImage, "The image has "+size+", more than the 100 million that are accepted. Send a smaller one.")
	case side > 0 && max(h.Width, h.Height) > side:
		return fault.New(fault.InvalidImage, "The image has "+size+". For scale "+strconv.Itoa(task.Scale())+" its longest side may have "+strconv.Itoa(side)+" pixels. Send a smaller one, or ask for scale 2.")
	}
	return nil
}

func missing() *fault.Error {
	return fault.New(fault.MissingImage, "The request has no image. Send one as a file, as image_url or as image_base64.")
}
