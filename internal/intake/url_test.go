package intake_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/dns/dnsmessage"

	"pictor/internal/fault"
	"pictor/internal/intake"
	"pictor/internal/job"
)

// Every server, name server and canary of this file listens on a loopback
// address, and no name is looked up anywhere else.

func loopback() []netip.Prefix {
	return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
}

func TestURL_downloads_a_picture(t *testing.T) {
	t.Parallel()
	sent := photo(t, "chelsea.png")
	var asked http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header.Clone()
		w.Header().Set("Content-Type", "text/html") // wrong, and of no account
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		_, _ = w.Write(sent)
	}))
	t.Cleanup(server.Close)
	image, err := newIntake(t, intake.Config{Allow: loopback()}).Take(t.Context(), job.RemoveBG, intake.Source{URL: " " + server.URL + "/cat?x=1#top\n"})
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	holds(t, image, sent)
	want := http.Header{
		"User-Agent":      {"Pictor"},
		"Accept":          {"image/png, image/jpeg, image/webp, */*;q=0.1"},
		"Accept-Encoding": {"identity"},
		"Connection":      {"close"},
	}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Error(diff)
	}
}

func TestURL_downloads_over_TLS_from_servers_it_can_trust(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(sends(photo(t, "chelsea.png")))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	image, err := newIntake(t, intake.Config{Allow: loopback(), Roots: roots}).Take(t.Context(), job.RemoveBG, intake.Source{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()

	_, err = newIntake(t, intake.Config{Allow: loopback()}).Take(t.Context(), job.RemoveBG, intake.Source{URL: server.URL})
	refused(t, err, fault.ImageURLUnreachable, "")
}

func TestURL_says_why_it_has_no_picture(t *testing.T) {
	t.Parallel()
	small := photo(t, "chelsea.png")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(small); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name   string
		answer http.HandlerFunc
		code   fault.Code
	}{
		{"404", http.NotFound, fault.ImageURLUnreachable},
		{"a picture with status 403", status(403, small), fault.ImageURLUnreachable},
		{"a picture with status 206", status(206, small), fault.ImageURLUnreachable},
		{"204", status(204, nil), fault.ImageURLUnreachable},
		{"gzip that nobody asked for", header("Content-Encoding", "gzip", packed.Bytes()), fault.ImageURLUnreachable},
		{"a body shorter than announced", header("Content-Length", strconv.Itoa(len(small)+1), small), fault.ImageURLUnreachable},
		{"a connection that breaks", abort, fault.ImageURLUnreachable},
		{"a page", sends([]byte("<html>no picture here</html>")), fault.InvalidImage},
		{"nothing at all", sends(nil), fault.InvalidImage},
		{"one byte too many, announced", header("Content-Length", strconv.Itoa(job.MaxImageBytes+1), nil), fault.FileTooLarge},
		{"one byte too many, not announced", chunked(job.MaxImageBytes + 1), fault.FileTooLarge},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(row.answer)
			server.Config.ErrorLog = log.New(io.Discard, "", 0)
			server.Start()
			t.Cleanup(server.Close)
			_, err := newIntake(t, intake.Config{Allow: loopback()}).Take(t.Context(), job.RemoveBG, intake.Source{URL: server.URL})
			refused(t, err, row.code, "")
		})
	}
}

func TestURL_takes_identity_and_20_MB_to_the_byte(t *testing.T) {
	t.Parallel()
	sent := padded(photo(t, "chelsea.png"), job.MaxImageBytes)
	server := httptest.NewServer(header("Content-Encoding", "Identity", sent))
	t.Cleanup(server.Close)
	image, err := newIntake(t, intake.Config{Allow: loopback()}).Take(t.Context(), job.RemoveBG, intake.Source{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	holds(t, image, sent)
}

func TestURL_follows_three_redirects_and_takes_nothing_along(t *testing.T) {
	t.Parallel()
	sent := photo(t, "chelsea.png")
	var carried atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Referer") != "" || r.Header.Get("Cookie") != "" || r.Header.Get("Authorization") != "" {
			carried.Store(true)
		}
		left, _ := strconv.Atoi(r.URL.Path[1:])
		if left == 0 {
			_, _ = w.Write(sent)
			return
		}
		http.SetCookie(w, &http.Cookie{Name: "session", Value: "1"})
		http.Redirect(w, r, "/"+strconv.Itoa(left-1), []int{301, 302, 303, 307, 308}[left%5])
	}))
	t.Cleanup(server.Close)
	in := newIntake(t, intake.Config{Allow: loopback()})
	image, err := in.Take(t.Context(), job.RemoveBG, intake.Source{URL: server.URL + "/3"})
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	holds(t, image, sent)
	if carried.Load() {
		t.Error("a Referer, a cookie or credentials went along")
	}
	_, err = in.Take(t.Context(), job.RemoveBG, intake.Source{URL: server.URL + "/4"})
	refused(t, err, fault.ImageURLUnreachable, "")
}

func TestURL_does_not_follow_a_redirect_to(t *testing.T) {
	t.Parallel()
	knocks, port := canary(t, "127.0.0.1")
	host := "http://127.0.0.1:" + port
	for name, to := range map[string]string{
		"another address than the allowed one": host + "/",
		"its IPv4-mapped form":                 "http://[::ffff:127.0.0.1]:" + port + "/",
		"a name of it":                         "http://canary.test:" + port + "/",
		"a file":                               "file:///etc/passwd",
		"another protocol":                     "gopher://127.0.0.2:" + port + "/",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := serveAt(t, "127.0.0.2", http.RedirectHandler(to, http.StatusFound))
			names := nameServer(t, map[string][]string{"canary.test.": {"127.0.0.1"}})
			in := newIntake(t, intake.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, Resolver: names})
			_, err := in.Take(t.Context(), job.RemoveBG, intake.Source{URL: server})
			refused(t, err, fault.ImageURLUnreachable, "")
		})
	}
	t.Cleanup(func() {
		if n := knocks.Load(); n != 0 {
			t.Errorf("%d connections were made", n)
		}
	})
}

func TestURL_does_not_send_credentials_that_a_redirect_names(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			http.Redirect(w, r, "http://user:secret@"+r.Host+"/cat.png", http.StatusFound)
			return
		}
		_, _ = w.Write(photo(t, "chelsea.png"))
	}))
	t.Cleanup(server.Close)
	_, err := newIntake(t, intake.Config{Allow: loopback()}).Take(t.Context(), job.RemoveBG, intake.Source{URL: server.URL + "/"})
	refused(t, err, fault.ImageURLUnreachable, "")
}

func TestURL_does_not_connect_to_a_name_of_an_address_that_is_not_public(t *testing.T) {
	t.Parallel()
	knocks, port := canary(t, "127.0.0.1")
	in := newIntake(t, intake.Config{Resolver: nameServer(t, map[string][]string{
		"canary.test.": {"127.0.0.1"},
		"mapped.test.": {"::ffff:127.0.0.1"},
	})})
	for _, name := range []string{"canary.test", "CANARY.test.", "mapped.test"} {
		_, err := in.Take(t.Context(), job.RemoveBG, intake.Source{URL: "http://" + name + ":" + port + "/"})
		refused(t, err, fault.ImageURLUnreachable, "")
	}
	_, err := in.Take(t.Context(), job.RemoveBG, intake.Source{URL: "http://127.0.0.1:" + port + "/"})
	refused(t, err, fault.InvalidImageURL, "")
	if n := knocks.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

func TestURL_checks_the_address_that_it_connects_to(t *testing.T) {
	t.Parallel()
	// A name that is harmless when it is first looked up, and inside when it
	// is looked up again: DNS rebinding.
	knocks, port := canary(t, "127.0.0.1")
	names := nameServer(t, map[string][]string{"rebinding.test.": {"127.0.0.2", "127.0.0.1"}})
	serveAtPort(t, "127.0.0.2", port, http.RedirectHandler("http://rebinding.test:"+port+"/again", http.StatusFound))
	in := newIntake(t, intake.Config{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}, Resolver: names})
	_, err := in.Take(t.Context(), job.RemoveBG, intake.Source{URL: "http://rebinding.test:" + port + "/"})
	refused(t, err, fault.ImageURLUnreachable, "")
	if got := err.Error(); !strings.Contains(got, "127.0.0.1") {
		t.Errorf("the log does not name the address: %s", got)
	}
	if n := knocks.Load(); n != 0 {
		t.Errorf("%d connections were made", n)
	}
}

func TestURL_says_the_same_of_every_address_that_does_not_answer(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := closed.Addr().String()
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	in := newIntake(t, intake.Config{Allow: loopback(), Resolver: nameServer(t, nil)})
	messages := map[string]bool{}
	for _, u := range []string{
		"http://" + nobody + "/",
		"http://unknown.test/",
		serveAt(t, "127.0.0.1", http.NotFoundHandler()),
		"http://" + notHTTP(t) + "/",
		"https://" + notHTTP(t) + "/",
	} {
		_, err := in.Take(t.Context(), job.RemoveBG, intake.Source{URL: u})
		refused(t, err, fault.ImageURLUnreachable, "15 seconds")
		messages[fault.From(err).Message] = true
	}
	if len(messages) != 1 {
		t.Errorf("the messages tell them apart: %v", messages)
	}
}

func TestURL_ends_when_its_time_is_up(t *testing.T) {
	t.Parallel()
	small := photo(t, "chelsea.png")
	for name, answer := range map[string]http.HandlerFunc{
		"with a server that is silent": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"with a server that drips": func(w http.ResponseWriter, r *http.Request) {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for i := 0; r.Context().Err() == nil; i++ {
				_, _ = w.Write(small[i%len(small):][:1])
				w.(http.Flusher).Flush()
				<-tick.C
			}
		},
		"in redirects, together": func(w http.ResponseWriter, r *http.Request) {
			<-time.After(40 * time.Millisecond)
			http.Redirect(w, r, "/"+r.URL.Path, http.StatusFound)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(answer)
			t.Cleanup(server.Close)
			in := newIntake(t, intake.Config{Allow: loopback(), URLTimeout: 100 * time.Millisecond})
			_, err := in.Take(t.Context(), job.RemoveBG, intake.Source{URL: server.URL})
			refused(t, err, fault.ImageURLUnreachable, "")
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the cause is %v, want that the time was up", err)
			}
		})
	}
}

func TestURL_ends_with_its_context(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(photo(t, "chelsea.png")[:100])
		w.(http.Flusher).Flush()
		cancel() // the client of Pictor goes away
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	_, err := newIntake(t, intake.Config{Allow: loopback()}).Take(ctx, job.RemoveBG, intake.Source{URL: server.URL})
	var refusal *fault.Error
	if !errors.Is(err, context.Canceled) || errors.As(err, &refusal) {
		t.Errorf("error %v, want only that it was cancelled", err)
	}
}

func TestURL_keeps_signed_addresses_out_of_its_errors(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	in := newIntake(t, intake.Config{Allow: loopback()})
	for _, s := range []string{server.URL + "/cat.png?signature=SECRET", "http://[::1?signature=SECRET", "http://u:SECRET@example.com/"} {
		_, err := in.Take(t.Context(), job.RemoveBG, intake.Source{URL: s})
		if err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("the error is %v", err)
		}
	}
}

func TestURL_uses_no_proxy(t *testing.T) {
	// Not parallel: the environment belongs to the whole process.
	knocks, port := canary(t, "127.0.0.1")
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"} {
		t.Setenv(name, "http://127.0.0.1:"+port)
	}
	server := serveAt(t, "127.0.0.2", sends(photo(t, "chelsea.png")))
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	names := nameServer(t, map[string][]string{"pictures.test.": {"127.0.0.2"}})
	image, err := newIntake(t, intake.Config{Allow: loopback(), Resolver: names}).Take(t.Context(), job.RemoveBG, intake.Source{URL: "http://pictures.test:" + u.Port() + "/"})
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if n := knocks.Load(); n != 0 {
		t.Errorf("the proxy got %d connections", n)
	}
}

func sends(b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(b) }
}

func status(code int, b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); _, _ = w.Write(b) }
}

func header(name, value string, b []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set(name, value); _, _ = w.Write(b) }
}

func abort(w http.ResponseWriter, _ *http.Request) {
	_, _ = w.Write([]byte("\x89PNG\r\n\x1a\n"))
	w.(http.Flusher).Flush()
	panic(http.ErrAbortHandler)
}

func chunked(size int64) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.(http.Flusher).Flush()
		_, _ = io.CopyN(w, zeros{}, size)
	}
}

// canary counts the connections made to it.
func canary(t *testing.T, address string) (knocks *atomic.Int64, port string) {
	t.Helper()
	knocks = new(atomic.Int64)
	l := accept(t, address, func(c net.Conn) {
		knocks.Add(1)
		_ = c.Close()
	})
	_, port, err := net.SplitHostPort(l)
	if err != nil {
		t.Fatal(err)
	}
	return knocks, port
}

// notHTTP is a server that speaks another protocol.
func notHTTP(t *testing.T) string {
	t.Helper()
	return accept(t, "127.0.0.1", func(c net.Conn) {
		_, _ = io.WriteString(c, "220 mail.test ESMTP\r\n")
		_ = c.Close()
	})
}

func accept(t *testing.T, address string, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp4", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			serve(c)
		}
	}()
	return l.Addr().String()
}

func serveAt(t *testing.T, address string, h http.Handler) string {
	t.Helper()
	return serveAtPort(t, address, "0", h)
}

func serveAtPort(t *testing.T, address, port string, h http.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp4", net.JoinHostPort(address, port))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(h)
	_ = server.Listener.Close()
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

// nameServer is a DNS server on loopback, and a resolver that asks no other.
// A name with several addresses has one after the other, the last for ever.
func nameServer(t *testing.T, names map[string][]string) *net.Resolver {
	t.Helper()
	socket, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	asked := map[string]int{}
	go func() {
		query := make([]byte, 1500)
		for {
			n, from, err := socket.ReadFrom(query)
			if err != nil {
				return
			}
			answer, err := resolve(query[:n], names, asked)
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = socket.WriteTo(answer, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp4", socket.LocalAddr().String())
	}}
}

func resolve(query []byte, names map[string][]string, asked map[string]int) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil, fmt.Errorf("query: %w", err)
	}
	q := m.Questions[0]
	name := strings.ToLower(q.Name.String())
	m.Header.Response, m.Header.Authoritative = true, true
	m.Additionals = nil
	addresses := names[name]
	if len(addresses) == 0 {
		m.Header.RCode = dnsmessage.RCodeNameError
		return m.Pack()
	}
	// Each look-up asks twice, for A and for AAAA.
	turn := fmt.Sprint(name, q.Type)
	addr := netip.MustParseAddr(addresses[min(asked[turn], len(addresses)-1)])
	asked[turn]++
	head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
	switch {
	case addr.Is4() && q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AResource{A: addr.As4()}}}
	case addr.Is6() && q.Type == dnsmessage.TypeAAAA:
		m.Answers = []dnsmessage.Resource{{Header: head, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}}}
	}
	return m.Pack()
}
