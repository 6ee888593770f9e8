package bus

import (
	"errors"
	"fmt"
	"os"

	"github.com/nats-io/nats.go"
)

// Credentials are files that say who we are and whom we trust, for what a URL
// cannot carry. Each may be empty. They are read again at every reconnect, so
// that they can be renewed under a running process.
type Credentials struct {
	User        string // a user's JWT and seed, as `nsc generate creds` writes them
	CA          string // PEM certificates that the server's must descend from; empty: the system's
	Certificate string // PEM, our own for a server that asks; needs Key
	Key         string // PEM, of Certificate
}

// options fails on files that cannot be read now: later it would look like a
// server that is down. nats.go checks all but the user's.
func (c Credentials) options() ([]nats.Option, error) {
	var options []nats.Option
	if (c.Certificate == "") != (c.Key == "") {
		return nil, errors.New("a client certificate and its key come together")
	}
	if c.User != "" {
		if _, err := os.ReadFile(c.User); err != nil {
			return nil, fmt.Errorf("read the user's credentials: %w", err)
		}
		options = append(options, nats.UserCredentials(c.User))
	}
	if c.CA != "" {
		options = append(options, nats.RootCAs(c.CA))
	}
	if c.Certificate != "" {
		options = append(options, nats.ClientCert(c.Certificate, c.Key))
	}
	return options, nil
}
