package db_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/lib/pq"
	"github.com/lib/pq/pqerror"
	"github.com/pressly/goose/v3"

	"pictor/db"
	"pictor/internal/testkit/pgtest"
)

// firstSchema is the last migration that version 1.0.0 knew.
const firstSchema = 2

// While a new version is rolled out, processes of the old one go on with the
// statements they know, on the schema of the new one.
func TestReleased_statements_work_on_the_newest_schema(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("released/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatal("there is no released version", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".sql"), func(t *testing.T) {
			t.Parallel()
			p := released(t, file, pgtest.URL(t))
			if err := p.live(t.Context()); err != nil {
				t.Error(err)
			}
			for name := range p.statements {
				if !p.used[name] {
					t.Errorf("the statement %s was not run", name)
				}
			}
		})
	}
}

// The statements themselves are right, and an upgrade with processes at work
// costs none of them a job.
func TestMigrate_may_run_under_processes_of_the_first_release(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	upTo(t, url, firstSchema)
	processes := make([]*process, 3)
	for i := range processes {
		processes[i] = released(t, "released/1.0.0.sql", url)
		if err := processes[i].live(t.Context()); err != nil {
			t.Fatalf("on its own schema: %v", err)
		}
	}
	migrated := make(chan struct{})
	var all sync.WaitGroup
	for _, p := range processes {
		all.Go(func() {
			for last := false; !last; {
				select {
				case <-migrated:
					last = true // one more life on the new schema
				default:
				}
				if err := p.live(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	if err := db.Migrate(t.Context(), url); err != nil {
		t.Error(err)
	}
	close(migrated)
	all.Wait()
}

// A migration that waits for a table queues before everybody who comes after
// it: one long query would stop the whole installation.
func TestMigrate_lets_others_pass_while_it_cannot_get_a_table(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	upTo(t, url, firstSchema)
	p := released(t, "released/1.0.0.sql", url)
	long, err := p.conn.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = long.Rollback() }()
	if _, err := long.ExecContext(t.Context(), `select count(*) from jobs`); err != nil {
		t.Fatal(err)
	}
	migrated := make(chan error, 1)
	go func() { migrated <- db.Migrate(t.Context(), url) }()
	for waits := 0; waits == 0; {
		err := p.conn.QueryRowContext(t.Context(), `select count(*) from pg_locks where not granted and relation = 'jobs'::regclass`).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
	}
	// The long query goes on until this is through.
	if err := p.live(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := long.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-migrated; err != nil {
		t.Error(err)
	}
	for _, m := range status(t, url) {
		if !m.Applied {
			t.Errorf("%s is not applied", m.Name)
		}
	}
}

func upTo(t *testing.T, url string, version int64) {
	t.Helper()
	conn, err := sql.Open("postgres", url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, conn, os.DirFS("migrations"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.UpTo(t.Context(), version); err != nil {
		t.Fatal(err)
	}
}

// process is one of a released version: it knows that version's statements and
// nothing else.
type process struct {
	statements map[string]string
	used       map[string]bool
	conn       *sql.DB
}

func released(t *testing.T, file, url string) *process {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{statements: make(map[string]string), used: make(map[string]bool)}
	for _, part := range strings.Split(string(text), "\n-- name: ")[1:] {
		name, statement, _ := strings.Cut(part, "\n")
		p.statements[name] = statement
	}
	cfg, err := pq.NewConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.BinaryParameters = true // as the release connects
	connector, err := pq.NewConnectorConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.conn = sql.OpenDB(connector)
	t.Cleanup(func() { _ = p.conn.Close() })
	return p
}

// session runs statements until the first one fails, outside or inside of one
// transaction.
type session struct {
	*process
	ctx context.Context
	on  interface {
		QueryContext(context.Context, string, ...any) (*sql.Rows, error)
		ExecContext(context.Context, string, ...any) (sql.Result, error)
	}
	inTx bool
	err  error
}

// do repeats what the database rolled back in favour of another, as the release
// does.
func (s *session) do(name string, statement func(text string) error) {
	if s.err != nil {
		return
	}
	text, ok := s.statements[name]
	if !ok {
		s.err = fmt.Errorf("the release has no statement %s", name)
		return
	}
	s.used[name] = true
	for range 5 {
		s.err = statement(text)
		if s.inTx || pq.As(s.err, pqerror.TRDeadlockDetected, pqerror.TRSerializationFailure) == nil {
			break
		}
	}
	if s.err != nil {
		s.err = fmt.Errorf("%s: %w", name, s.err)
	}
}

// rows gives the values of every row.
func (s *session) rows(name string, args ...any) (all [][]any) {
	s.do(name, func(text string) error {
		all = nil
		rows, err := s.on.QueryContext(s.ctx, text, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		for rows.Next() {
			row := make([]any, len(columns))
			into := make([]any, len(columns))
			for i := range row {
				into[i] = &row[i]
			}
			if err := rows.Scan(into...); err != nil {
				return err
			}
			for i, value := range row {
				if text, ok := value.([]byte); ok { // a uuid, among others
					row[i] = string(text)
				}
			}
			all = append(all, row)
		}
		return rows.Err()
	})
	return all
}

// one gives the first values of a single row, which must be as many as want
// has, and equal to those that are not nil.
func (s *session) one(name string, want []any, args ...any) []any {
	rows := s.rows(name, args...)
	if s.err != nil {
		return make([]any, len(want))
	}
	if len(rows) != 1 || len(rows[0]) < len(want) {
		s.err = fmt.Errorf("%s gave %v, want one row of at least %d values", name, rows, len(want))
		return make([]any, len(want))
	}
	for i, w := range want {
		if w != nil && fmt.Sprint(rows[0][i]) != fmt.Sprint(w) {
			s.err = fmt.Errorf("%s gave %v, want %v", name, rows[0], want)
		}
	}
	return rows[0]
}

// change runs a statement that must change as many rows.
func (s *session) change(name string, want int64, args ...any) {
	s.do(name, func(text string) error {
		result, err := s.on.ExecContext(s.ctx, text, args...)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || want >= 0 && n != want {
			return errors.Join(fmt.Errorf("changed %d rows, want %d", n, want), err)
		}
		return nil
	})
}

// whatever says that it does not matter how many rows a statement changes.
const whatever = -1

func (s *session) tx(do func(*session)) {
	if s.err != nil {
		return
	}
	for range 5 {
		tx, err := s.conn.BeginTx(s.ctx, nil)
		if err != nil {
			s.err = err
			return
		}
		in := &session{process: s.process, ctx: s.ctx, on: tx, inTx: true}
		do(in)
		if in.err == nil {
			in.err = tx.Commit()
		}
		_ = tx.Rollback()
		s.err = in.err
		if pq.As(s.err, pqerror.TRDeadlockDetected, pqerror.TRSerializationFailure) == nil {
			return
		}
	}
}

// live is everything that version 1.0.0 does, from an account's first job to
// its deletion.
func (p *process) live(ctx context.Context) error {
	s := &session{process: p, ctx: ctx, on: p.conn}
	s.one("migration", []any{nil, true}, 1)
	name, worker := "account "+uuid.NewString(), "worker "+uuid.NewString()
	var account any
	s.tx(func(s *session) {
		account = s.one("create_account", []any{nil, name, false, 1000}, name, false, 1000)[0]
		s.change("opening_credit", 1, account, 1000)
	})
	s.one("account_by_name", []any{account}, name)
	s.one("account_by_id", []any{account}, account)
	s.rows("accounts")
	s.keys(account)
	s.tx(func(s *session) {
		s.one("credit_balance", []any{1500}, account, 500, int64(1e15))
		s.one("credit_row", []any{nil, "credit", 500, 1500}, account, 500, 1500, "gift")
	})
	s.one("affords", []any{1500, 0}, account)
	s.change("alive", 1, worker, "{remove-bg,upscale-2x,upscale-4x}")
	s.completed(account)
	s.refunded(account)
	s.swept(account)
	if rows := s.rows("ledger", account); s.err == nil && len(rows) != 11 {
		s.err = fmt.Errorf("the ledger has %d rows, want 2 credits, 5 charges and 4 refunds", len(rows))
	}
	s.one("account_by_id", []any{account, nil, nil, 1400, 0}, account)
	s.change("delete_account", 1, account)
	for _, tally := range []string{"tally_unfinished", "tally_finished", "movements"} {
		s.rows(tally)
	}
	for name := range p.statements {
		if strings.HasPrefix(name, "invariant_") {
			s.one(name, []any{0})
		}
	}
	s.one("no_job_hangs", []any{0}, "6 minutes")
	return s.err
}

func (s *session) keys(account any) {
	hash := append([]byte(uuid.NewString())[:16], []byte(uuid.NewString())[:16]...)
	var key any
	s.tx(func(s *session) {
		s.one("count_key", []any{1}, account, 5)
		key = s.one("create_key", []any{nil, account}, account, hash, "pictor_...zs9u", "laptop")[0]
	})
	s.one("authenticate", []any{account}, hash)
	s.one("keys", []any{key}, account)
	s.one("key", []any{key}, key)
	s.change("revoke_key", 1, key)
}

// admit queues a job.
func (s *session) admit(account any, key, hash any) string {
	id := uuid.Must(uuid.NewV7()).String()
	s.one("admit", []any{"admitted", id}, id, account, "remove-bg", 100, 5, "Waiting for a worker.", "image/png", 1000, 40, 30, key, hash, "24 hours")
	return id
}

func (s *session) claim(id string, fence int) {
	s.one("claim", []any{id, nil, nil, "processing", nil, nil, 100, false, fence}, id, "Working on the image.", "1 minute", 3)
}

func (s *session) completed(account any) {
	id := s.admit(account, "key", []byte("hash"))
	s.one("admit", []any{"replayed", id}, uuid.Must(uuid.NewV7()).String(), account, "remove-bg", 100, 5, "", "image/png", 1000, 40, 30, "key", []byte("hash"), "24 hours")
	s.one("admitted", []any{id}, id)
	s.one("billed", []any{1400}, id)
	s.change("enqueued", 1, id)
	s.claim(id, 1)
	s.change("progress", 1, id, 1, 50, "", "1 minute")
	s.one("owns", []any{1, true, true}, id)
	s.change("complete", 1, id, 1, "The image is ready.", "image/png", 2000, "token of "+id)
	s.one("completed", []any{1}, id, 1)
	s.one("job", []any{id, account, "remove-bg", "completed", 100}, id, account)
	s.one("job_by_token", []any{id}, "token of "+id)
	s.rows("jobs", account, 10)
	s.rows("inputs", 10)
	s.change("input_deleted", 1, id)
	s.rows("expire", "24 hours", 10)
}

func (s *session) refunded(account any) {
	failed := s.admit(account, nil, nil)
	s.change("enqueued", 1, failed)
	s.claim(failed, 1)
	s.change("fail", 1, failed, "no", 1)
	s.one("failed", []any{1}, failed, 1)
	cancelled := s.admit(account, nil, nil)
	s.change("cancel", 1, cancelled, "cancelled")
	s.one("cancelled", []any{1}, cancelled)
}

func (s *session) swept(account any) {
	holder := uuid.NewString()
	s.change("take_turn", whatever, holder, "10 seconds")
	silent, queued := s.admit(account, nil, nil), s.admit(account, nil, nil)
	s.rows("orphans", "0 seconds", 10)
	s.rows("lost", "30 seconds", "10 seconds", 10)
	s.rows("stuck", 3, "5 minutes", 10)
	s.change("republished", 1, queued)
	s.claim(silent, 1)
	s.change("give_back", 1, silent, 1)
	s.claim(silent, 2)
	s.one("unfinished", []any{1}, silent)
	s.change("give_up", 0, silent, "given up", 3)
	s.change("sweep", 1, silent, "swept", 3, "0 seconds")
	s.change("sweep", 1, queued, "swept", 3, "0 seconds")
	s.change("end_turn", whatever, holder)
}
