// Package parts gives a test the real tools of the flow: a database of its own,
// a NATS server of its own in this process, and a store in memory.
package parts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/uuid"

	"pictor/internal/admission"
	"pictor/internal/blob"
	"pictor/internal/bus"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
	"pictor/internal/vips"
)

// stuckAfter is the age from which a job that is not final counts as an error.
const stuckAfter = 5 * time.Minute

// Parts are the tools that stages are made of.
type Parts struct {
	DB     *postgres.DB
	Queue  *bus.Bus
	Store  *blob.Store
	Server *bus.Server
	Log    *slog.Logger
}

// New makes the tools, with the stream in place. They end with the test.
func New(t *testing.T) *Parts {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	server, err := bus.StartServer(t.TempDir(), 0, log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Stop)
	p := &Parts{DB: pgtest.New(t), Server: server, Log: log}
	p.Queue = p.Connect(t)
	if p.Store, err = blob.Open(t.Context(), "mem://"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Store.Close() })
	if err := p.Queue.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// Connect opens one more connection to the server, as another process would.
func (p *Parts) Connect(t *testing.T) *bus.Bus {
	t.Helper()
	b, err := bus.Connect(bus.Config{URL: p.Server.URL(), Name: t.Name()}, p.Log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// Admission is the stage on these tools.
func (p *Parts) Admission() *admission.Admission {
	return admission.New(p.DB, p.Store, p.Queue, p.Log)
}

// Account opens an account with a balance.
func (p *Parts) Account(t *testing.T, balance point.Amount) int64 {
	t.Helper()
	a, err := p.DB.CreateAccount(t.Context(), uuid.NewString(), balance, false)
	if err != nil {
		t.Fatal(err)
	}
	return a.ID
}

// Balance is what an account has now.
func (p *Parts) Balance(t *testing.T, account int64) point.Amount {
	t.Helper()
	a, err := p.DB.AccountByID(t.Context(), account)
	if err != nil {
		t.Fatal(err)
	}
	return a.Balance
}

// Job reads a job, whoever's it is.
func (p *Parts) Job(t *testing.T, id job.ID) job.Job {
	t.Helper()
	j, err := p.DB.Job(t.Context(), 0, id)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// Request asks for a job on one of the pictures in testdata/images.
func Request(t *testing.T, account int64, task job.Task, picture string) admission.Request {
	t.Helper()
	b := Picture(t, picture)
	h, err := vips.ReadHeader(b)
	if err != nil {
		t.Fatal(err)
	}
	return admission.Request{
		Account: account,
		Task:    task,
		Input:   job.Image{Type: h.Type, Size: int64(len(b)), Width: h.Width, Height: h.Height},
		SHA256:  sha256.Sum256(b),
		Body:    bytes.NewReader(b),
	}
}

// Picture reads a file of testdata/images.
func Picture(t testing.TB, name string) []byte {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	b, err := os.ReadFile(filepath.Join(filepath.Dir(here), "..", "..", "..", "testdata", "images", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Admit admits a job on cup.png.
func (p *Parts) Admit(t *testing.T, account int64, task job.Task) job.Job {
	t.Helper()
	admitted, err := p.Admission().Admit(t.Context(), Request(t, account, task, "cup.png"))
	if err != nil {
		t.Fatal(err)
	}
	return admitted.Job
}

// Has says whether the store holds an object.
func (p *Parts) Has(t *testing.T, key string) bool {
	t.Helper()
	object, err := p.Store.Open(t.Context(), key)
	if err != nil {
		return false
	}
	_ = object.Close()
	return true
}

// CheckInvariants fails the test when the books are wrong.
func (p *Parts) CheckInvariants(t *testing.T) {
	t.Helper()
	violations, err := p.DB.Invariants(context.WithoutCancel(t.Context()), stuckAfter)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		if v.Count != 0 {
			t.Errorf("invariant %s: %d violations", v.Name, v.Count)
		}
	}
}
