// Command pictor is a self-hosted, paid image API: its servers, its operator's
// commands and its client in one binary.
//
// Exit codes: 0 done, 1 failed, 2 a mistake in the command line or in the
// configuration.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"pictor/internal/app"
)

const about = `Pictor is a self-hosted, paid image API: background removal and upscaling as jobs that are charged in Point.

Start with "pictor dev", which runs everything on this machine. Every setting is a flag and an environment variable.

Exit codes: 0 done, 1 failed, 2 a mistake in the command line or in the configuration.`

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	var c commands
	k := kong.Must(&c, kong.Name("pictor"), kong.Description(about), kong.Writers(stdout, stderr),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true}),
		kong.ExplicitGroups([]kong.Group{{Key: "serve", Title: "Serve:"}, {Key: "operate", Title: "Operate:"}, {Key: "use", Title: "Use:"}}))
	if err := app.CheckEnvironment(k); err != nil {
		return report(stderr, &app.UsageError{Err: err})
	}
	parsed, err := k.Parse(args)
	if err != nil {
		return report(stderr, &app.UsageError{Err: err})
	}
	log := c.New(stderr)
	slog.SetDefault(log) // for libraries that log there
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	parsed.BindTo(ctx, (*context.Context)(nil))
	err = parsed.Run(log, &output{c.JSON, stdout, stderr})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	return report(stderr, err)
}

func report(stderr io.Writer, err error) int {
	var usage *app.UsageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "pictor: %s\nRun \"pictor --help\" for the commands and their flags.\n", err)
		return 2
	default:
		fmt.Fprintf(stderr, "pictor: %s\n", err)
		return 1
	}
}
