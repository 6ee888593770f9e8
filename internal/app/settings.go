package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Setting is one setting as the program uses it.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"` // without secrets
	From  string `json:"from"`  // flag, environment, dev stack or default
}

// Effective lists every setting of the command line k. What was not given is
// filled in as the commands do, where data is the folder of a dev stack, if any.
// The error names every mistake.
func (c *Settings) Effective(k *kong.Context, data string) ([]Setting, error) {
	given := make(map[string]string)
	for _, f := range k.Flags() {
		for _, name := range f.Envs {
			if os.Getenv(name) != "" {
				given[name] = "environment"
			}
		}
	}
	for _, p := range k.Path {
		if p.Flag != nil && len(p.Flag.Envs) > 0 {
			given[p.Flag.Envs[0]] = "flag"
		}
	}
	err := c.complete(data, given)
	var settings []Setting
	for _, f := range k.Flags() {
		if len(f.Envs) == 0 {
			continue
		}
		value := shown(f.Target.Interface())
		if f.Tag.Has("secret") && value != "" {
			value = "(set)"
		}
		settings = append(settings, Setting{f.Envs[0], value, or(given[f.Envs[0]], "default")})
	}
	return settings, err
}

// complete fills in what was not given, and notes what comes from a dev stack.
func (c *Settings) complete(data string, given map[string]string) error {
	asked := c.Stores
	connection := Connection{Data: data, Stores: asked}
	info, err := connection.resolve()
	c.Stores = connection.Stores
	if info.DatabaseURL != "" {
		for name, pair := range map[string][2]string{
			"PICTOR_DATABASE_URL": {asked.DatabaseURL, c.DatabaseURL},
			"PICTOR_NATS_URL":     {asked.NATSURL, c.NATSURL},
			"PICTOR_BLOB_URL":     {asked.BlobURL, c.BlobURL},
		} {
			if pair[0] != pair[1] {
				given[name] = "dev stack"
			}
		}
	}
	err = errors.Join(err, c.mistakes())
	c.Listen, c.ResultsListen, c.OpsListen = c.Listen.or(defaultListen), c.ResultsListen.or(defaultResults), c.OpsListen.or(defaultOps)
	c.BaseURL = or(c.BaseURL, "http://"+string(c.Listen)+apiRoot)
	c.ResultsURL = or(c.ResultsURL, "http://"+string(c.ResultsListen))
	c.Workers = c.workers()
	return err
}

// mistakes are all but those in the stores themselves, of which a dev stack may
// have others.
func (c *Settings) mistakes() error {
	return errors.Join(c.Edge.Mistakes(), c.Edge.mistakesWith(c.Stores), c.Times.Mistakes(), c.Pictures.Mistakes(), c.Ops.Mistakes(), c.Leave.Mistakes())
}

func (a Address) or(otherwise Address) Address { return Address(or(string(a), string(otherwise))) }

// UnknownVariables are those of the environment that are named like settings
// and are none, which is what a slip of the pen gives. Not every one is wrong:
// Kubernetes makes some for a service called pictor.
func UnknownVariables(k *kong.Kong) []string {
	known := make(map[string]bool)
	_ = kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
		if flag, ok := node.(*kong.Flag); ok {
			for _, name := range flag.Envs {
				known[name] = true
			}
		}
		return next(nil)
	})
	unknown := []string{}
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "PICTOR_") && !known[name] {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// shown is a value as it was written, without secrets.
func shown(value any) string {
	switch v := value.(type) {
	case []netip.Prefix:
		networks := make([]string, len(v))
		for i, n := range v {
			networks[i] = n.String()
		}
		return strings.Join(networks, ",")
	case slog.Level:
		return strings.ToLower(v.String())
	case string:
		if !strings.Contains(v, "://") {
			return v
		}
		urls := strings.Split(v, ",")
		for i, s := range urls {
			urls[i] = withoutSecrets(strings.TrimSpace(s))
		}
		return strings.Join(urls, ",")
	default:
		return fmt.Sprint(v)
	}
}

// withoutSecrets is a URL whose password, and whatever else in it looks like
// one, is not told.
func withoutSecrets(s string) string {
	const hidden = "xxxxx"
	u, err := url.Parse(s)
	if err != nil {
		return "(no URL)"
	}
	if u.User != nil {
		if _, ok := u.User.Password(); ok {
			u.User = url.UserPassword(u.User.Username(), hidden)
		} else if !strings.HasPrefix(u.Scheme, "postgres") {
			u.User = url.User(hidden) // of NATS: a token
		}
	}
	q, changed := u.Query(), false
	for name := range q {
		lower := strings.ToLower(name)
		for _, word := range []string{"pass", "secret", "token", "sig", "credential"} {
			if strings.Contains(lower, word) {
				q.Set(name, hidden)
				changed = true
			}
		}
	}
	if changed {
		u.RawQuery = q.Encode()
	}
	return u.String()
}
