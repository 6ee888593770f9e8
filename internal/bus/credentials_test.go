package bus_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"pictor/internal/bus"
	"pictor/internal/job"
	"pictor/internal/testkit/authority"
)

// works says whether a job can be queued through a connection with this
// configuration.
func works(t *testing.T, c bus.Config) bool {
	t.Helper()
	b, err := bus.Connect(c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := b.Ensure(ctx); err != nil {
		return false
	}
	return b.Publish(ctx, job.RemoveBG, "1", 0) == nil
}

// refused says whether a connection with this configuration stays without
// answers. A fault of ours would look the same: works is the counter-proof.
func refused(t *testing.T, c bus.Config) bool {
	t.Helper()
	b, err := bus.Connect(c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return b.Ensure(ctx) != nil
}

func TestConnect_with_a_password_in_the_URL(t *testing.T) {
	t.Parallel()
	s := serve(t, &server.Options{Username: "pictor", Password: "p@ss word"})
	u := parse(t, s.ClientURL())
	u.User = url.UserPassword("pictor", "wrong")
	if !refused(t, bus.Config{URL: u.String()}) {
		t.Error("a wrong password works")
	}
	u.User = url.UserPassword("pictor", "p@ss word")
	if !works(t, bus.Config{URL: u.String()}) {
		t.Error("the right password does not work")
	}
}

// A password is renewed on our side first. nats.go gives up for ever after it
// was turned away twice, and says nothing of the first connection's errors; a
// worker would sit there deaf and dumb until somebody restarts it.
func TestConnect_comes_back_after_its_password_was_refused(t *testing.T) {
	t.Parallel()
	s := serve(t, &server.Options{CustomClientAuthentication: &slowToRenew{}})
	log := make(lines, 1000)
	b, err := bus.Connect(bus.Config{URL: s.ClientURL()}, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for b.Ensure(ctx) != nil {
		if ctx.Err() != nil {
			t.Fatal("it does not come back")
		}
	}
	if line := <-log; !strings.Contains(line, "Authorization Violation") {
		t.Errorf("the log says %s", line)
	}
}

// slowToRenew lets nobody in for four times.
type slowToRenew struct{ asked atomic.Int64 }

func (s *slowToRenew) Check(server.ClientAuthentication) bool { return s.asked.Add(1) > 4 }

// lines takes a log, line by line; what nobody reads is dropped.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default:
	}
	return len(b), nil
}

func TestConnect_with_certificates_in_files(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ca := authority.New(t, dir)
	certificate, key := ca.Issue(t, dir, "server")
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca.Certificate)
	s := serve(t, &server.Options{TLS: true, TLSTimeout: 20, TLSConfig: &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	}})
	address := strings.Replace(s.ClientURL(), "nats://", "tls://", 1)
	mine, myKey := ca.Issue(t, dir, "client")
	if !works(t, bus.Config{URL: address, Credentials: bus.Credentials{CA: ca.File, Certificate: mine, Key: myKey}}) {
		t.Error("the right certificates do not work")
	}
	if !refused(t, bus.Config{URL: address, Credentials: bus.Credentials{CA: ca.File}}) {
		t.Error("it works without the client's certificate")
	}
	if !refused(t, bus.Config{URL: address, Credentials: bus.Credentials{Certificate: mine, Key: myKey}}) {
		t.Error("it works with a server nobody vouches for")
	}
}

func TestConnect_with_the_credentials_of_a_user(t *testing.T) {
	t.Parallel()
	operator, account, user := newKey(t, nkeys.CreateOperator), newKey(t, nkeys.CreateAccount), newKey(t, nkeys.CreateUser)
	system := newKey(t, nkeys.CreateAccount)
	resolver := &server.MemAccResolver{}
	for _, key := range []nkeys.KeyPair{account, system} {
		claims := jwt.NewAccountClaims(public(t, key))
		if key == account {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		}
		if err := resolver.Store(public(t, key), encode(t, claims, operator)); err != nil {
			t.Fatal(err)
		}
	}
	trusted, err := jwt.DecodeOperatorClaims(encode(t, jwt.NewOperatorClaims(public(t, operator)), operator))
	if err != nil {
		t.Fatal(err)
	}
	s := serve(t, &server.Options{TrustedOperators: []*jwt.OperatorClaims{trusted}, AccountResolver: resolver, SystemAccount: public(t, system)})

	seed, err := user.Seed()
	if err != nil {
		t.Fatal(err)
	}
	text, err := jwt.FormatUserConfig(encode(t, jwt.NewUserClaims(public(t, user)), account), seed)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "pictor.creds")
	write(t, file, text)
	if !works(t, bus.Config{URL: s.ClientURL(), Credentials: bus.Credentials{User: file}}) {
		t.Error("the credentials do not work")
	}
	if !refused(t, bus.Config{URL: s.ClientURL()}) {
		t.Error("it works without credentials")
	}
}

func TestConnect_refuses_files_that_it_cannot_use(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	for name, c := range map[string]bus.Credentials{
		"missing credentials":       {User: missing},
		"missing CA":                {CA: missing},
		"missing certificate":       {Certificate: missing, Key: missing},
		"certificate without a key": {Certificate: missing},
	} {
		if _, err := bus.Connect(bus.Config{URL: "nats://127.0.0.1:1", Credentials: c}, quiet); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// serve runs a NATS server with JetStream until the test ends.
func serve(t *testing.T, o *server.Options) *server.Server {
	t.Helper()
	o.Host, o.Port, o.JetStream, o.StoreDir, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, true, t.TempDir(), true, true
	s, err := server.NewServer(o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server does not get ready")
	}
	return s
}

func newKey(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	key, err := create()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func public(t *testing.T, key nkeys.KeyPair) string {
	t.Helper()
	s, err := key.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func encode(t *testing.T, claims jwt.Claims, by nkeys.KeyPair) string {
	t.Helper()
	s, err := claims.Encode(by)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parse(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func write(t *testing.T, file string, content []byte) {
	t.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
