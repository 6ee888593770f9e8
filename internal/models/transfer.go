package models

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// transfer brings one file into its part.
type transfer struct {
	Source
	model  Description
	part   *os.File
	client *http.Client
}

// run brings the part to its full length and verifies it. A connection that
// breaks after it brought something is opened anew; a file that turns out to be
// wrong after parts of it came at different times is fetched once more, whole:
// it may have changed in between.
func (t *transfer) run(ctx context.Context) error {
	for fresh := false; ; fresh = true {
		resumed, err := t.fetch(ctx)
		if err != nil {
			return err
		}
		err = t.verify()
		if err == nil {
			return nil
		}
		if _, wrong := errors.AsType[*WrongFileError](err); !wrong {
			return err
		}
		if e := t.restart(); e != nil {
			return e
		}
		if !resumed || fresh {
			_ = os.Remove(t.part.Name())
			return err
		}
	}
}

// fetch says whether the part is of more than one connection.
func (t *transfer) fetch(ctx context.Context) (resumed bool, err error) {
	start, err := t.length()
	if err != nil {
		return false, err
	}
	resumed = start > 0
	for farthest := start; ; {
		if t.model.Size > 0 && farthest >= t.model.Size {
			return resumed, nil // a part that was whole already
		}
		err := t.connect(ctx)
		if err == nil {
			return resumed, nil
		}
		broken, ok := errors.AsType[*brokenError](err)
		if !ok {
			return resumed, err
		}
		now, err := t.length()
		switch {
		case err != nil:
			return resumed, err
		case ctx.Err() != nil:
			return resumed, fmt.Errorf("interrupted: %d bytes of %s are kept in %s, pull it again to go on", now, t.model.Name, t.part.Name())
		case now <= farthest && !broken.shorter:
			return resumed, fmt.Errorf("download %s: %w", t.model.Name, broken.cause)
		}
		farthest, resumed = now, true
	}
}

// brokenError says that the connection is to blame, and another may do better.
type brokenError struct {
	cause   error
	shorter bool // the file is shorter than what had come of it, which is gone
}

func (e *brokenError) Error() string { return e.cause.Error() }
func (e *brokenError) Unwrap() error { return e.cause }

// connect asks for what is missing and appends it to the part.
func (t *transfer) connect(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	have, err := t.length()
	if err != nil {
		return err
	}
	request, err := t.request(ctx, have)
	if err != nil {
		return err
	}
	response, err := t.client.Do(request)
	if err != nil {
		return &brokenError{cause: t.unreachable(err)}
	}
	defer response.Body.Close()

	whole := int64(0)
	switch response.StatusCode {
	case http.StatusOK: // the server knows no ranges, or the file has changed
		if response.ContentLength > 0 {
			whole = response.ContentLength
		}
		have = 0
	case http.StatusPartialContent:
		if whole, err = rangeFrom(response.Header.Get("Content-Range"), have); err != nil {
			return fmt.Errorf("%s: %w", redacted(t.URL), err)
		}
	case http.StatusRequestedRangeNotSatisfiable:
		if err := t.restart(); err != nil {
			return err
		}
		return &brokenError{fmt.Errorf("%s has no bytes from %d on", redacted(t.URL), have), have > 0}
	default:
		return t.refused(response)
	}
	if whole > 0 && t.model.Size > 0 && whole != t.model.Size {
		return &WrongFileError{Model: t.model.Name, URL: redacted(t.URL), Whole: whole, Size: t.model.Size}
	}
	if have == 0 {
		if err := t.restart(); err != nil {
			return err
		}
	}
	if err := t.mark(response); err != nil {
		return err
	}
	if _, err := t.part.Seek(have, io.SeekStart); err != nil {
		return t.model.full(err)
	}
	stalled := fmt.Errorf("nothing came from %s for %s", redacted(t.URL), t.Stall)
	watch := time.AfterFunc(t.Stall, func() { cancel(stalled) })
	defer watch.Stop()
	err = t.copy(response.Body, have, whole, func() { watch.Reset(t.Stall) })
	if context.Cause(ctx) == stalled && err != nil {
		return &brokenError{cause: stalled}
	}
	return err
}

func (t *transfer) request(ctx context.Context, have int64) (*http.Request, error) {
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("%q is no http(s) URL", t.URL)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, t.URL, nil)
	if err != nil {
		return nil, fmt.Errorf("ask for %s: %w", u.Redacted(), err)
	}
	request.Header.Set("User-Agent", "pictor")
	request.Header.Set("Accept-Encoding", "identity") // ranges and checksums are of the file itself
	if have > 0 {
		request.Header.Set("Range", fmt.Sprintf("bytes=%d-", have))
		if validator := t.validator(); validator != "" {
			request.Header.Set("If-Range", validator)
		}
	}
	return request, nil
}

// copy appends what comes to the part, and tells each time that something came.
func (t *transfer) copy(body io.Reader, have, whole int64, came func()) error {
	if whole == 0 {
		whole = t.model.Size
	}
	t.report(have, whole)
	for buffer := make([]byte, 256<<10); ; {
		n, err := body.Read(buffer)
		if n > 0 {
			came()
			if _, err := t.part.Write(buffer[:n]); err != nil {
				return t.model.full(err)
			}
			have += int64(n)
			t.report(have, whole)
		}
		switch {
		case t.model.Size > 0 && have > t.model.Size:
			return errors.Join(t.restart(), &WrongFileError{Model: t.model.Name, URL: redacted(t.URL), Whole: have, Size: t.model.Size})
		case err == io.EOF && have < whole:
			return &brokenError{cause: fmt.Errorf("%s ended after %d of %d bytes", redacted(t.URL), have, whole)}
		case err == io.EOF:
			return nil
		case err != nil:
			return &brokenError{cause: fmt.Errorf("%s broke off after %d of %d bytes: %w", redacted(t.URL), have, whole, err)}
		}
	}
}

func (t *transfer) report(done, whole int64) {
	if t.Progress != nil {
		t.Progress(done, whole)
	}
}

func (t *transfer) length() (int64, error) {
	info, err := t.part.Stat()
	if err != nil {
		return 0, fmt.Errorf("look at %s: %w", t.part.Name(), err)
	}
	return info.Size(), nil
}

// restart throws away what has come.
func (t *transfer) restart() error {
	_ = os.Remove(markOf(t.part))
	if n, err := t.length(); n == 0 || err != nil {
		return err
	}
	if err := t.part.Truncate(0); err != nil {
		return t.model.full(err)
	}
	return nil
}

// markOf names the file that tells which version of which URL a part is of.
func markOf(part *os.File) string { return part.Name() + ".from" }

// mark notes the version that the server sends, for If-Range. A weak ETag does
// not tell versions of the same meaning apart.
func (t *transfer) mark(response *http.Response) error {
	validator := response.Header.Get("ETag")
	if validator == "" || strings.HasPrefix(validator, "W/") {
		validator = response.Header.Get("Last-Modified")
	}
	text := redacted(t.URL) + "\n" + validator + "\n"
	if err := os.WriteFile(markOf(t.part), []byte(text), 0o600); err != nil {
		return t.model.full(err)
	}
	return nil
}

// validator is what mark noted, if that was of the same URL: a mirror gives the
// same file another version, and the checksum decides in the end.
func (t *transfer) validator() string {
	b, err := os.ReadFile(markOf(t.part))
	if err != nil {
		return ""
	}
	from, validator, _ := strings.Cut(string(b), "\n")
	if from != redacted(t.URL) {
		return ""
	}
	return strings.TrimSpace(validator)
}

// rangeFrom reads Content-Range: the length of the whole file, 0 if the server
// does not tell, and an error for another range than the one asked for.
func rangeFrom(header string, want int64) (whole int64, err error) {
	rest, ok := strings.CutPrefix(header, "bytes ")
	span, length, cut := strings.Cut(rest, "/")
	from, _, dash := strings.Cut(span, "-")
	start, err := strconv.ParseInt(from, 10, 64)
	if !ok || !cut || !dash || err != nil || start != want {
		return 0, fmt.Errorf("the server answered with the range %q instead of one from %d on", header, want)
	}
	if length == "*" {
		return 0, nil
	}
	if whole, err = strconv.ParseInt(length, 10, 64); err != nil || whole < want {
		return 0, fmt.Errorf("the server answered with the range %q", header)
	}
	return whole, nil
}

// unreachable says what to do without a connection.
func (t *transfer) unreachable(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // the URL is named here
	}
	return fmt.Errorf("%s cannot be reached: %w; behind a proxy set HTTPS_PROXY, without the internet name a mirror by --url or put the file into %s by hand, as %s",
		redacted(t.URL), err, filepath.Dir(t.model.Path), t.model.File)
}

func (t *transfer) refused(response *http.Response) error {
	message := fmt.Sprintf("%s answered %s", redacted(t.URL), response.Status)
	switch {
	case response.StatusCode == http.StatusNotFound || response.StatusCode == http.StatusGone:
		message += ": the file is not there any more; name a mirror by --url"
	case response.StatusCode >= 500 || response.StatusCode == http.StatusTooManyRequests:
		message += ": try again later, or name a mirror by --url"
	}
	return errors.New(message)
}

// redacted is a URL without its password.
func redacted(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "the URL"
	}
	return u.Redacted()
}
