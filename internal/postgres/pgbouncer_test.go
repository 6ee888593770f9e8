package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"pictor/db"
	"pictor/internal/apikey"
	"pictor/internal/job"
	"pictor/internal/point"
	"pictor/internal/postgres"
	"pictor/internal/testkit/pgtest"
)

// A pgbouncer that pools transactions gives each statement to whichever of its
// few connections is free. lib/pq's default sends a statement in two messages,
// and the second finds another connection, where the statement is missing or,
// worse, is somebody else's.
func TestPgbouncer_that_pools_transactions_serves_every_statement(t *testing.T) {
	t.Parallel()
	b := open(t, 2)
	through := startPgbouncer(t, b.url)
	pooled, err := postgres.Open(t.Context(), through, postgres.Config{MaxConns: 24, Timeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pooled.Close() })

	const clients = 24
	together(clients, func(i int) {
		if err := (customer{pooled, t, through}).live(fmt.Sprintf("customer %d", i)); err != nil {
			t.Errorf("customer %d: %v", i, err)
		}
	})
	same(t, "completed and failed jobs", []int64{2 * clients, 3 * clients}, []int64{
		b.number(t, `select count(*) from jobs where state = 'completed'`),
		b.number(t, `select count(*) from jobs where state = 'failed'`),
	})
	same(t, "Point left", int64(clients)*int64(3*point.Point-2*job.RemoveBG.Cost()), b.number(t, `select sum(balance) from accounts`))
}

// customer uses every statement once or more.
type customer struct {
	*postgres.DB
	t       *testing.T
	through string
}

func (c customer) live(name string) error {
	ctx := c.t.Context()
	a, err := c.CreateAccount(ctx, name, point.Point, false)
	if err != nil {
		return err
	}
	key := apikey.New("pictor")
	k, err := c.CreateKey(ctx, a.ID, key, "")
	if err != nil {
		return err
	}
	for range 2 {
		if _, err := c.Credit(ctx, a.ID, point.Point, "more"); err != nil {
			return err
		}
		if _, err := c.Authenticate(ctx, key.Hash()); err != nil {
			return err
		}
		if err := c.complete(a.ID); err != nil {
			return err
		}
	}
	for _, end := range []func(account int64) error{c.cancel, c.fail, c.sweep} {
		if err := end(a.ID); err != nil {
			return err
		}
	}
	return errors.Join(c.look(a, name), c.leave(a.ID, k.ID))
}

func (c customer) admit(account int64) (job.ID, error) {
	if err := c.Affords(c.t.Context(), account, job.RemoveBG.Cost()); err != nil {
		return "", err
	}
	admission := pgtest.Admission(c.t, account)
	_, err := c.Admit(c.t.Context(), admission)
	return admission.ID, err
}

// claim also loses a first claim to a graceful stop.
func (c customer) claim(account int64) (job.Job, error) {
	id, err := c.admit(account)
	if err != nil {
		return job.Job{}, err
	}
	ctx := c.t.Context()
	_, err = c.Enqueued(ctx, id)
	first, verdict, err2 := c.Claim(ctx, id, hour)
	_, err3 := c.GiveBack(ctx, id, first.Fence)
	j, again, err4 := c.Claim(ctx, id, hour)
	if verdict != postgres.Claimed || again != postgres.Claimed {
		return j, fmt.Errorf("claims of %s: %v, then %v: %w", id, verdict, again, errors.Join(err, err2, err3, err4))
	}
	return j, errors.Join(err, err2, err3, err4)
}

func (c customer) complete(account int64) error {
	j, err := c.claim(account)
	if err != nil {
		return err
	}
	ctx := c.t.Context()
	holds, err := c.Progress(ctx, j.ID, j.Fence, 50, "half", hour)
	done, err2 := c.Complete(ctx, j.ID, j.Fence, result(j.ID))
	found, err3 := c.JobByToken(ctx, result(j.ID).Token)
	owns, err4 := c.Owns(ctx, j.ID, j.ID.ResultKey(j.Fence))
	if !holds || !done || !owns || found.ID != j.ID {
		return fmt.Errorf("job %s: progress %t, complete %t, owns its result %t, found %s: %w", j.ID, holds, done, owns, found.ID, errors.Join(err, err2, err3, err4))
	}
	return errors.Join(err, err2, err3, err4)
}

func (c customer) cancel(account int64) error {
	id, err := c.admit(account)
	if err != nil {
		return err
	}
	done, err := c.Cancel(c.t.Context(), id, "cancelled")
	return verdict("cancel", done, err)
}

func (c customer) fail(account int64) error {
	j, err := c.claim(account)
	if err != nil {
		return err
	}
	done, err := c.Fail(c.t.Context(), j.ID, j.Fence, "failed")
	return verdict("fail", done, err)
}

func (c customer) sweep(account int64) error {
	j, err := c.claim(account)
	if err != nil {
		return err
	}
	done, err := c.Sweep(c.t.Context(), j.ID, 0, "swept")
	return verdict("sweep", done, err)
}

func verdict(what string, done bool, err error) error {
	if err != nil || done {
		return err
	}
	return fmt.Errorf("%s changed nothing", what)
}

// look reads everything that a customer, an operator and the sweeper read.
func (c customer) look(a postgres.Account, name string) error {
	ctx := c.t.Context()
	got, err := c.Account(ctx, name)
	if err == nil && got.ID != a.ID {
		err = fmt.Errorf("%s is account %d, want %d", name, got.ID, a.ID)
	}
	errs := []error{err, c.Ping(ctx), c.Alive(ctx, name, job.Tasks())}
	jobs, err := c.Jobs(ctx, a.ID, 10)
	if err == nil && len(jobs) != 5 {
		err = fmt.Errorf("%d jobs, want 5", len(jobs))
	}
	errs = append(errs, err)
	for _, j := range jobs {
		_, err := c.Job(ctx, a.ID, j.ID)
		_, err2 := c.Billed(ctx, j.ID)
		errs = append(errs, err, err2, c.Republished(ctx, j.ID), c.InputDeleted(ctx, j.ID))
	}
	_, release, err := c.TrySweep(ctx)
	if err == nil {
		release()
	}
	errs = append(errs, err)
	for _, read := range []func() error{
		func() error { _, err := c.Accounts(ctx); return err },
		func() error { _, err := c.AccountByID(ctx, a.ID); return err },
		func() error { _, err := c.Keys(ctx, a.ID); return err },
		func() error { _, err := c.Ledger(ctx, a.ID); return err },
		func() error { _, err := c.Orphans(ctx, hour, 10); return err },
		func() error { _, err := c.Now(ctx); return err },
		func() error { _, err := c.Lost(ctx, job.RemoveBG, time.Now(), time.Now(), 10); return err },
		func() error { _, err := c.Stuck(ctx, hour, 10); return err },
		func() error { _, err := c.Expire(ctx, hour, 10); return err },
		func() error { _, err := c.Inputs(ctx, 10); return err },
		func() error { _, err := c.Unfinished(ctx); return err },
		func() error { _, err := c.Finished(ctx); return err },
		func() error { _, err := c.Movements(ctx); return err },
		func() error { _, err := c.Invariants(ctx, stuck); return err },
		func() error { _, err := db.Status(ctx, c.through); return err },
	} {
		errs = append(errs, read())
	}
	return errors.Join(errs...)
}

func (c customer) leave(account, key int64) error {
	_, err := c.RevokeKey(c.t.Context(), key)
	return errors.Join(err, c.DeleteAccount(c.t.Context(), account))
}

// startPgbouncer puts a pgbouncer with two server connections in front of the
// database, until the test ends, and returns the database's URL through it. It
// listens on a unix socket alone, in a folder of its own.
func startPgbouncer(t *testing.T, database string) string {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	sockets := u.Query().Get("host")
	dir, err := os.MkdirTemp("", "pictor-pgbouncer")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	settings := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s
[pgbouncer]
unix_socket_dir = %s
listen_port = 6432
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
log_connections = 0
log_disconnections = 0
`, sockets, u.Query().Get("port"), u.User.Username(), dir)
	ini := filepath.Join(dir, "pgbouncer.ini")
	if err := os.WriteFile(ini, []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}

	// Debian puts it where only root's PATH looks.
	binary, err := exec.LookPath("pgbouncer")
	if err != nil {
		binary = "/usr/sbin/pgbouncer"
	}
	var said bytes.Buffer
	cmd := exec.Command(binary, ini)
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// The folder of Postgres's socket is its user's alone, and as root
	// pgbouncer does not run.
	if os.Geteuid() == 0 {
		info, err := os.Stat(sockets)
		if err != nil {
			t.Fatal(err)
		}
		owner := info.Sys().(*syscall.Stat_t)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
		if err := os.Chown(dir, int(owner.Uid), int(owner.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	started, ended := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // the death signal belongs to the thread that forks
		started <- cmd.Start()
		_ = cmd.Wait()
		close(ended)
	}()
	if err := <-started; err != nil {
		t.Fatalf("tests need pgbouncer, which `go tool task test` installs: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("pgbouncer said:\n%s", said.String())
		}
	})

	query := url.Values{"host": {dir}, "port": {"6432"}, "sslmode": {"disable"}}
	u.RawQuery = query.Encode()
	wait(t, ended, func() bool { _, err := os.Stat(filepath.Join(dir, ".s.PGSQL.6432")); return err == nil })
	return u.String()
}

func wait(t *testing.T, ended <-chan struct{}, ready func() bool) {
	t.Helper()
	tick, deadline := time.NewTicker(5*time.Millisecond), time.After(time.Minute)
	defer tick.Stop()
	for !ready() {
		select {
		case <-tick.C:
		case <-ended:
			t.Fatal("pgbouncer ended at once")
		case <-deadline:
			t.Fatal("pgbouncer does not get ready")
		}
	}
}
