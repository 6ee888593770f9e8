package app

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"pictor/db"
	"pictor/internal/bus"
	"pictor/internal/cluster"
)

// DevConfig is what `pictor dev` is configured by. It has a database, a queue
// and a store of its own, so that theirs is not.
type DevConfig struct {
	Data   string `default:"pictor-data" type:"path" placeholder:"DIR" help:"Folder of the stack. What is in it is used again."`
	Worker bool   `default:"true" negatable:"" help:"Work on jobs in this process."`
	Edge
	Times
	Pictures
	Ops
}

// Mistakes names every mistake, not only the first.
func (c DevConfig) Mistakes() error {
	return errors.Join(c.Edge.Mistakes(), c.Edge.mistakesWith(Stores{}), c.Times.Mistakes(), c.Pictures.Mistakes(), c.Ops.Mistakes())
}

// Stack is `pictor dev`: everything in one process, on a folder.
type Stack struct {
	Info    DevInfo
	Example string // a picture to try

	dir      string
	last     DevInfo // of the last run on the folder, if there was one
	log      *slog.Logger
	postgres *cluster.Cluster
	api      *API
	worker   *Worker // nil without one
	closers  closers
}

const (
	devDatabase = "pictor"
	devExample  = "example.jpg"
)

//go:embed example.jpg
var example []byte

// NewStack starts the database and the queue, and puts the rest together. One
// stack runs on a folder at a time.
func NewStack(ctx context.Context, c DevConfig, log *slog.Logger) (_ *Stack, err error) {
	if err := c.Mistakes(); err != nil {
		return nil, &UsageError{err}
	}
	s := &Stack{log: log}
	defer func() {
		if err != nil {
			s.closers.close()
		}
	}()
	if s.dir, err = filepath.Abs(c.Data); err != nil {
		return nil, fmt.Errorf("find the data folder: %w", err)
	}
	if err := s.occupy(); err != nil {
		return nil, err
	}
	if err := s.startPostgres(ctx); err != nil {
		return nil, err
	}
	if err := s.startQueue(); err != nil {
		return nil, err
	}
	blobs, err := blobURL(s.dir)
	if err != nil {
		return nil, err
	}
	stores := Stores{DatabaseURL: s.Info.DatabaseURL, NATSURL: s.Info.NATSURL, BlobURL: blobs}
	if err := s.account(ctx, c.KeyPrefix); err != nil {
		return nil, err
	}
	temp := filepath.Join(s.dir, devFiles)
	edge := APIConfig{Edge: c.Edge, Times: c.Times, Ops: c.Ops, TempDir: temp}
	edge.Others.Listen = []Address{addressOf(s.last.BaseURL), anyPort}
	edge.Others.Results = []Address{addressOf(s.last.ResultsURL), anyPort}
	if s.api, err = NewAPI(ctx, edge, stores, log); err != nil {
		return nil, err
	}
	s.closers.add(s.api.Stop)
	s.Info.BaseURL, s.Info.ResultsURL = s.api.BaseURL, s.api.ResultsURL
	if !c.Worker {
		return s, nil
	}
	if s.worker, err = NewWorker(ctx, WorkerConfig{c.Pictures, c.Ops, temp, true}, stores, log); err != nil {
		return nil, err
	}
	s.api.ops.metrics = append(s.api.ops.metrics, s.worker.metrics.metrics)
	s.api.ops.checks = append(s.api.ops.checks, check{"models", s.worker.models})
	s.api.ops.models = s.worker.ops.models
	// In reverse: the API stops first, and its clients are answered while the
	// worker still works.
	s.closers = append(s.closers[:len(s.closers)-1], s.worker.Stop, s.api.Stop)
	return s, nil
}

// occupy makes the folder this process's own, and clears what a killed one left.
func (s *Stack) occupy() error {
	// Others may pass through: Postgres runs as another user when we are root.
	if err := os.MkdirAll(s.dir, 0o711); err != nil {
		return fmt.Errorf("make the data folder: %w", err)
	}
	held, err := lock(filepath.Join(s.dir, devLock))
	if err != nil {
		return err
	}
	s.closers.add(func() { _ = held.Close() })
	s.withdraw() // a killed stack could not
	if b, err := os.ReadFile(filepath.Join(s.dir, devLast)); err == nil {
		_ = json.Unmarshal(b, &s.last) // what cannot be read is made anew
	}
	temp := filepath.Join(s.dir, devFiles)
	if err := errors.Join(os.RemoveAll(temp), os.Mkdir(temp, 0o700)); err != nil {
		return fmt.Errorf("clear the data folder: %w", err)
	}
	s.Example = filepath.Join(s.dir, devExample)
	if err := os.WriteFile(s.Example, example, 0o644); err != nil {
		return fmt.Errorf("write the example picture: %w", err)
	}
	return nil
}

func (s *Stack) startPostgres(ctx context.Context) error {
	var err error
	if s.postgres, err = cluster.Start(ctx, filepath.Join(s.dir, "postgres"), s.log); err != nil {
		return err
	}
	s.closers.add(func() {
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		if err := s.postgres.Stop(ctx); err != nil {
			s.log.Warn("Postgres did not stop by itself", "error", err)
		}
	})
	if err := s.postgres.CreateDatabase(ctx, devDatabase); err != nil {
		return err
	}
	s.Info.DatabaseURL = s.postgres.URL(devDatabase)
	return db.Migrate(ctx, s.Info.DatabaseURL)
}

// startQueue prefers the port of the last run: a worker of its own process then
// finds the queue again.
func (s *Stack) startQueue() error {
	dir := filepath.Join(s.dir, devQueue)
	_, last, _ := net.SplitHostPort(string(addressOf(s.last.NATSURL)))
	port, _ := strconv.Atoi(last)
	queue, err := bus.StartServer(dir, port, s.log)
	if err != nil && port != 0 {
		queue, err = bus.StartServer(dir, 0, s.log)
	}
	if err != nil {
		return err
	}
	s.closers.add(queue.Stop)
	s.Info.NATSURL = queue.URL()
	return nil
}

// addressOf is the host and port of a URL, or any port when it has none.
func addressOf(s string) Address {
	if u, err := url.Parse(s); err == nil && u.Port() != "" {
		return Address(u.Host)
	}
	return anyPort
}

// Run opens the doors, writes dev.json, calls ready, and goes on until ctx is
// done or a part fails. When it returns nothing is left running.
func (s *Stack) Run(ctx context.Context, ready func() error) error {
	defer s.closers.close()
	s.api.Start()
	workerFailed := make(<-chan error)
	if s.worker != nil {
		s.worker.Start()
		workerFailed = s.worker.Failed()
	}
	if err := s.announce(); err != nil {
		return err
	}
	defer s.withdraw()
	if err := ready(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.api.Failed():
		return err
	case err := <-workerFailed:
		return err
	case <-s.postgres.Done():
		return errors.New("Postgres ended by itself; postgres/postgres.log in the data folder tells why")
	}
}

// OpsURL is where /healthz and /readyz are.
func (s *Stack) OpsURL() string { return s.api.OpsURL }

// Curl is a command that removes a background, for a shell.
func (s *Stack) Curl() string {
	return fmt.Sprintf("curl -sS -H 'Authorization: Bearer %s' -F %s '%s/remove-bg?wait=60'", s.Info.APIKey, quote("image=@"+s.Example), s.Info.BaseURL)
}

// quote keeps a shell from reading anything in s.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// announce writes dev.json, whole or not at all, and leaves word where the
// stack is.
func (s *Stack) announce() error {
	b, err := json.MarshalIndent(s.Info, "", "  ")
	if err == nil {
		err = writeWhole(filepath.Join(s.dir, devInfo), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", devInfo, err)
	}
	if path, err := lastStack(); err == nil {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), writeWhole(path, []byte(s.dir+"\n"))); err != nil {
			s.log.Debug("commands in other folders will not find this stack by themselves", "error", err)
		}
	}
	return nil
}

// withdraw takes dev.json away, and keeps what it says for the next run.
func (s *Stack) withdraw() {
	err := os.Rename(filepath.Join(s.dir, devInfo), filepath.Join(s.dir, devLast))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("dev.json stays although nothing runs", "error", err)
	}
}

// writeWhole writes a file for its owner only; readers see all of it or none.
func writeWhole(path string, content []byte) error {
	next := fmt.Sprintf("%s.%d", path, time.Now().UnixNano())
	if err := os.WriteFile(next, content, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// devDefaults is the configuration of a stack of which nothing was said.
func devDefaults() (DevConfig, error) {
	var c DevConfig
	k, err := kong.New(&c, kong.NoDefaultHelp())
	if err == nil {
		_, err = k.Parse(nil)
	}
	if err != nil {
		return c, fmt.Errorf("read the defaults: %w", err)
	}
	return c, nil
}
