package app

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"
)

// CheckEnvironment names every PICTOR_ variable that cannot be read, not only
// the first, and with them what is wrong with the others. It takes those that are
// set to nothing for not set, which is what compose files and systemd units mean
// by them.
func CheckEnvironment(k *kong.Kong) error {
	seen := make(map[string]bool)
	var mistakes []error
	err := kong.Visit(k.Model, func(node kong.Visitable, next kong.Next) error {
		flag, ok := node.(*kong.Flag)
		if !ok {
			return next(nil)
		}
		for _, name := range flag.Envs {
			value, set := os.LookupEnv(name)
			if seen[name] || !set {
				continue
			}
			seen[name] = true
			if value == "" {
				_ = os.Unsetenv(name)
				continue
			}
			target := reflect.New(flag.Target.Type()).Elem()
			if err := flag.Parse(kong.ScanFromTokens(kong.Token{Type: kong.FlagValueToken, Value: value}), target); err != nil {
				mistakes = append(mistakes, fmt.Errorf("%s is %q: %s", name, value, strings.TrimPrefix(err.Error(), "--"+flag.Name+": ")))
				_ = os.Unsetenv(name) // the program does not start, and the others are still to be read
			}
		}
		return next(nil)
	})
	if len(mistakes) > 0 {
		mistakes = append(mistakes, readable())
	}
	return errors.Join(append(mistakes, err)...)
}

// readable names the mistakes in what can be read of the environment.
func readable() error {
	var c Config
	k, err := kong.New(&c, kong.Name("pictor"), kong.NoDefaultHelp())
	if err == nil {
		_, err = k.Parse(nil)
	}
	if err != nil {
		return err
	}
	if c.DatabaseURL == "" {
		return c.mistakes() // nobody has looked for a dev stack
	}
	return errors.Join(c.mistakes(), c.Stores.Mistakes())
}
