package postgres_test

import (
	"context"
	"database/sql"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"pictor/db"
	"pictor/internal/cluster"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/authority"
)

// Who runs Postgres on another machine names certificates in the URL, and hears
// what is wrong with them: libpq's parameters, as every tool of Postgres has
// them.
func TestOpen_with_certificates_in_files(t *testing.T) {
	t.Parallel()
	server, ca := startWithTLS(t)
	dir := t.TempDir()
	other := authority.New(t, dir)
	certificate, key := ca.Issue(t, dir, "certified")
	forged, forgedKey := other.Issue(t, dir, "forged")

	for _, c := range []struct {
		name, user, host string
		query            url.Values
		says             string // "": it works
	}{
		{"the right CA", "pictor", "127.0.0.1", url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca.File}}, ""},
		{"another CA", "pictor", "127.0.0.1", url.Values{"sslmode": {"verify-full"}, "sslrootcert": {other.File}}, "certificate signed by unknown authority"},
		{"no CA", "pictor", "127.0.0.1", url.Values{"sslmode": {"verify-full"}}, "certificate signed by unknown authority"},
		{"another CA, whatever the name", "pictor", "127.0.0.1", url.Values{"sslmode": {"verify-ca"}, "sslrootcert": {other.File}}, "certificate signed by unknown authority"},
		{"another name than the certificate's", "pictor", "localhost", url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca.File}}, "wanted to match localhost"},
		{"another name, and nobody asks", "pictor", "localhost", url.Values{"sslmode": {"verify-ca"}, "sslrootcert": {ca.File}}, ""},
		{"no CA, and nobody asks", "pictor", "127.0.0.1", url.Values{"sslmode": {"require"}}, ""},
		{"no TLS", "pictor", "127.0.0.1", url.Values{"sslmode": {"disable"}}, "no encryption"},
		{"our certificate", "certified", "127.0.0.1", url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca.File}, "sslcert": {certificate}, "sslkey": {key}}, ""},
		{"no certificate of ours", "certified", "127.0.0.1", url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca.File}}, "requires a valid client certificate"},
		// What the server says to that may be lost: it closes before it has read all that we sent.
		{"a certificate of another CA", "certified", "127.0.0.1", url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca.File}, "sslcert": {forged}, "sslkey": {forgedKey}}, "reach the database"},
		{"a key of another certificate", "certified", "127.0.0.1", url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca.File}, "sslcert": {certificate}, "sslkey": {forgedKey}}, "private key does not match"},
		{"a file that is no certificate", "pictor", "127.0.0.1", url.Values{"sslmode": {"verify-full"}, "sslrootcert": {key}}, "sslrootcert"},
	} {
		u := server.url(c.user, c.host, c.query)
		through, err := postgres.Open(t.Context(), u, postgres.Config{MaxConns: 2})
		if err == nil {
			_ = through.Close()
		}
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %q", c.name, err, c.says)
		}
	}

	// Migrations connect by themselves.
	secure := server.url("certified", "127.0.0.1", url.Values{"sslmode": {"verify-full"}, "sslrootcert": {ca.File}, "sslcert": {certificate}, "sslkey": {key}})
	if err := db.Migrate(t.Context(), secure); err != nil {
		t.Fatal(err)
	}
	through, err := postgres.Open(t.Context(), secure, postgres.Config{MaxConns: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	if _, err := through.CreateAccount(t.Context(), "acme", point.Point, false); err != nil {
		t.Error(err)
	}
}

// tlsServer is a Postgres that takes encrypted connections over TCP.
type tlsServer struct {
	*cluster.Cluster
	data, port string
}

// url is a database's, reached over TCP.
func (s tlsServer) url(user, host string, query url.Values) string {
	u := url.URL{Scheme: "postgres", User: url.User(user), Host: net.JoinHostPort(host, s.port), Path: "/postgres", RawQuery: query.Encode()}
	return u.String()
}

// startWithTLS runs a server, with a certificate of the authority, until the
// test ends. Over TCP it takes the user pictor, and the user certified with a
// certificate of that name.
func startWithTLS(t *testing.T) (tlsServer, *authority.Authority) {
	t.Helper()
	s := startOverTCP(t)
	ca := authority.New(t, s.data)
	certificate, key := ca.Issue(t, s.data, "server")
	hba := filepath.Join(s.data, "pg_hba.conf")
	rules := "local all all trust\nhostssl all pictor 127.0.0.1/32 trust\nhostssl all certified 127.0.0.1/32 cert\n"
	if err := os.WriteFile(hba, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(s.data)
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t) // for root, somebody else
	for _, file := range []string{ca.File, certificate, key, hba} {
		if err := os.Chown(file, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}

	local, err := sql.Open("postgres", strings.Replace(s.URL("postgres"), "port=5432", "port="+s.port, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	for _, statement := range []string{
		"create role certified login superuser",
		"alter system set ssl_cert_file = 'server.pem'", "alter system set ssl_key_file = 'server-key.pem'",
		"alter system set ssl_ca_file = 'ca.pem'", "alter system set ssl = on", "select pg_reload_conf()",
	} {
		if _, err := local.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	// The server reads its files again in its own time.
	tick, deadline := time.NewTicker(5*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for {
		encrypted, err := postgres.Open(t.Context(), s.url("pictor", "127.0.0.1", url.Values{"sslmode": {"require"}}), postgres.Config{MaxConns: 1})
		if err == nil {
			_ = encrypted.Close()
			return s, ca
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the server takes no encrypted connection: %v", err)
		}
	}
}

// startOverTCP runs a server on a port that is free. Another process may take
// the port before the server does: then it is another one.
func startOverTCP(t *testing.T) tlsServer {
	t.Helper()
	dir := t.TempDir()
	var failed error
	for range 10 {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(free.Addr().String())
		_ = free.Close()
		o := cluster.Options{Unsafe: true, Settings: []string{"listen_addresses=127.0.0.1", "port=" + port}}
		c, err := o.Start(t.Context(), dir, slog.New(slog.DiscardHandler))
		if err != nil {
			failed = err
			continue
		}
		t.Cleanup(func() {
			if err := c.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		return tlsServer{c, filepath.Join(dir, "data"), port}
	}
	t.Fatal(failed)
	return tlsServer{}
}
