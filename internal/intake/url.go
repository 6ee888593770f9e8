package intake

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"pictor/internal/fault"
	"pictor/internal/job"
)

const (
	maxRedirects = 3
	maxURL       = 8 << 10 // characters
)

// url downloads an image. The whole of it, from the look-up of the name to the
// last byte and over at most three redirects, has job.URLTimeout.
func (in *Intake) url(ctx context.Context, task job.Task, s string, take takes) (*Image, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return nil, missing()
	}
	u, err := in.parse(s)
	if err != nil {
		return nil, fault.Because(fault.InvalidImageURL, "image_url must be an absolute http(s) URL of a public host, without user name and password.", err)
	}
	limited, cancel := context.WithTimeout(ctx, in.urlTimeout)
	defer cancel()

	refuse := func(err error) error {
		var refusal *fault.Error
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("download from %s: %w", u.Host, ctx.Err())
		case errors.As(err, &refusal):
			return refusal
		}
		return unreachable(fmt.Errorf("download from %s: %w", u.Host, err))
	}
	body, err := in.get(limited, u)
	if err != nil {
		return nil, refuse(err)
	}
	defer body.Close()
	image, err := take(limited, task, body, refuse)
	if errors.Is(err, missing()) {
		return nil, fault.New(fault.InvalidImage, "image_url leads to an empty file. Send the address of a PNG, JPEG or WebP file.")
	}
	return image, err
}

// unreachable says the same whatever went wrong: more would let a client look
// around in other people's networks from ours. The cause is for the log.
func unreachable(cause error) *fault.Error {
	return fault.Because(fault.ImageURLUnreachable, "The image could not be downloaded from image_url. It must be public and arrive within "+
		strconv.Itoa(int(job.URLTimeout.Seconds()))+" seconds; or send the image itself.", cause)
}

func (in *Intake) parse(s string) (*url.URL, error) {
	if len(s) > maxURL {
		return nil, fmt.Errorf("URL of %d characters", len(s))
	}
	u, err := url.Parse(s)
	if err != nil {
		return nil, withoutURL(err)
	}
	return u, in.wellFormed(u)
}

// withoutURL is the reason in a *url.Error: errors are logged, and a signed URL
// is a secret.
func withoutURL(err error) error {
	var withURL *url.Error
	if errors.As(err, &withURL) {
		return withURL.Err
	}
	return err
}

// wellFormed says whether u is an absolute http(s) URL whose host may be
// asked for: a name, or an address that the guard lets through.
func (in *Intake) wellFormed(u *url.URL) error {
	host := strings.TrimSuffix(u.Hostname(), ".")
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("scheme %q", u.Scheme)
	case host == "":
		return errors.New("no host")
	case u.User != nil:
		return errors.New("a user name")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("port %q", port)
		}
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return in.guard.check(addr)
	}
	// Some resolvers read 127.1, 0x7f.1 and 2130706433 as addresses. No name
	// on the internet ends in a number.
	last := host[strings.LastIndexByte(host, '.')+1:]
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || strings.Trim(last, "0123456789") == "" {
		return fmt.Errorf("host %q ends in a number", host)
	}
	return nil
}

func (in *Intake) newClient(resolver *net.Resolver, roots *x509.CertPool) *http.Client {
	dialer := &net.Dialer{Control: in.guard.control, Resolver: resolver, KeepAlive: -1}
	return &http.Client{
		Transport: &http.Transport{
			// No proxy: it, and not the guard, would see the address.
			Proxy:                  nil,
			DialContext:            dialer.DialContext,
			TLSClientConfig:        &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			DisableKeepAlives:      true,
			DisableCompression:     true, // a small body could become a huge one
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("more than %d redirects", maxRedirects)
			}
			r.Header.Del("Referer")
			return in.wellFormed(r.URL)
		},
	}
}

// get opens the body of a 200 answer.
func (in *Intake) get(ctx context.Context, u *url.URL) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", "Pictor")
	r.Header.Set("Accept", "image/png, image/jpeg, image/webp, */*;q=0.1")
	r.Header.Set("Accept-Encoding", "identity")
	answer, err := in.client.Do(r)
	if err != nil {
		return nil, withoutURL(err)
	}
	encoding := answer.Header.Get("Content-Encoding")
	switch {
	case answer.StatusCode != http.StatusOK:
		err = fmt.Errorf("status %d", answer.StatusCode)
	case encoding != "" && !strings.EqualFold(encoding, "identity"):
		err = fmt.Errorf("Content-Encoding %q, which was not asked for", encoding)
	case answer.ContentLength > job.MaxImageBytes:
		err = fault.TooLarge()
	}
	if err != nil {
		_ = answer.Body.Close()
		return nil, err
	}
	return answer.Body, nil
}
