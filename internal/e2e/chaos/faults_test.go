package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"pictor/internal/job"
)

// fault is one thing that goes wrong, and is set right again before inject
// returns.
type fault struct {
	name    string
	touches []part // what it holds: two faults at once never touch the same
	urgent  bool   // belongs to the short run
	inject  func(ctx context.Context, k *stack, b *book, r *rand.Rand) error
}

type part string

const (
	theAPI      part = "API"
	theWorkers  part = "workers"
	theQueue    part = "queue"
	theDatabase part = "database"
	theNetwork  part = "network"
	theStore    part = "store"
)

// faults is the deck. What of the plan in the notes is not in it stands in the
// package comment.
func faults(k *stack) []fault {
	all := []fault{
		{"worker killed", []part{theWorkers}, true, killOne(workersOf)},
		{"worker stopped past its lease", []part{theWorkers}, true, stallWorker},
		{"worker asked to stop", []part{theWorkers}, false, terminateOne(workersOf)},
		{"API killed", []part{theAPI}, false, killOne(servesOf)},
		{"API killed between charge and publish", []part{theAPI, theNetwork}, true, killAt("from admit(")},
		{"API killed between publish and answer", []part{theAPI, theNetwork}, false, killAt("set enqueued_at = coalesce")},
		{"API asked to stop", []part{theAPI}, false, terminateOne(servesOf)},
		{"NATS killed", []part{theQueue}, false, restartQueue(nil)},
		{"NATS store wiped", []part{theQueue}, true, restartQueue(wipe)},
		{"NATS store rolled back", []part{theQueue}, false, rollBackQueue},
		{"NATS store damaged", []part{theQueue}, false, restartQueue(damage)},
		{"NATS silent", []part{theQueue, theNetwork}, false, silenceQueue(true)},
		{"NATS acknowledgements lost", []part{theQueue, theNetwork}, false, silenceQueue(false)},
		{"messages doubled and invented", []part{theQueue, theDatabase}, true, invent},
		{"Postgres backend killed", []part{theDatabase}, false, killBackend},
		{"Postgres stopped at once", []part{theDatabase}, true, crashDatabase},
		{"database cut off after commit", []part{theNetwork}, true, cutAfterCommit},
		{"database slow", []part{theNetwork}, false, slowDatabase},
		{"database silent", []part{theNetwork}, false, silenceDatabase},
		{"database connections reset", []part{theNetwork}, false, resetDatabase},
		{"store broken", []part{theStore}, true, breakStore},
		{"store full", []part{theStore}, false, fillStore},
	}
	if k.smallQueue {
		all = append(all, fault{"NATS disk full", []part{theQueue}, false, fillQueue})
	}
	if k.server.small {
		all = append(all, fault{"Postgres disk full", []part{theDatabase}, false, fillDatabase})
	}
	return all
}

func (f fault) disjoint(g fault) bool {
	for _, p := range f.touches {
		for _, q := range g.touches {
			if p == q {
				return false
			}
		}
	}
	return true
}

func workersOf(k *stack) []*node { return k.workers }
func servesOf(k *stack) []*node  { return k.serves }

type injection = func(ctx context.Context, k *stack, b *book, r *rand.Rand) error

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

func killOne(of func(*stack) []*node) injection {
	return func(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
		n := of(k)[r.IntN(len(of(k)))]
		n.kill()
		pause(ctx, between(r, 0, 1500*time.Millisecond))
		return n.start()
	}
}

// terminateOne asks a process to stop, as an orchestrator does: not before all
// of its kind take work. It must stop within the time that it gives its pictures
// and its clients.
func terminateOne(of func(*stack) []*node) injection {
	return func(ctx context.Context, k *stack, b *book, r *rand.Rand) error {
		for _, n := range of(k) {
			if !n.ready(ctx, time.Minute) {
				return fmt.Errorf("%s is not ready", n.name)
			}
		}
		n := of(k)[r.IntN(len(of(k)))]
		if !n.terminate(time.Minute) {
			b.problem("%s did not stop within a minute of SIGTERM", n.name)
		}
		return n.start()
	}
}

func stallWorker(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
	n := k.workers[r.IntN(len(k.workers))]
	n.signal(syscall.SIGSTOP)
	pause(ctx, between(r, k.lease*5/4, k.lease*5/2))
	n.signal(syscall.SIGCONT)
	return nil
}

// killAt kills an API process at the moment when the database has carried out a
// statement and the process does not know it yet.
func killAt(statement string) injection {
	return func(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
		n := k.serves[r.IntN(len(k.serves))]
		ended := n.ended()
		n.database.set(rules{after: func(ctx context.Context, s string) error {
			if !strings.Contains(s, statement) {
				return nil
			}
			n.signal(syscall.SIGKILL)
			<-ctx.Done()
			return errCut
		}})
		select {
		case <-ended:
		case <-time.After(10 * time.Second): // no request came
			n.kill()
		}
		n.database.set(rules{})
		pause(ctx, between(r, 0, time.Second))
		return n.start()
	}
}

// restartQueue kills NATS, does something to its store, and starts it again.
func restartQueue(meanwhile func(k *stack, r *rand.Rand) error) injection {
	return func(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
		k.queue[0].kill()
		var err error
		if meanwhile != nil {
			err = meanwhile(k, r)
		}
		pause(ctx, between(r, 0, 2*time.Second))
		return errors.Join(err, k.queue[0].start())
	}
}

func wipe(k *stack, _ *rand.Rand) error { return removeContents(k.nats) }

// damage flips a byte of a message block, or cuts off its end.
func damage(k *stack, r *rand.Rand) error {
	var blocks []string
	err := filepath.WalkDir(k.nats, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".blk") {
			blocks = append(blocks, path)
		}
		return err
	})
	if err != nil || len(blocks) == 0 {
		return err
	}
	block := blocks[r.IntN(len(blocks))]
	b, err := os.ReadFile(block)
	if err != nil || len(b) == 0 {
		return err
	}
	if at := r.IntN(len(b)); r.IntN(2) == 0 {
		b = b[:at]
	} else {
		b[at] ^= 0xff
	}
	return os.WriteFile(block, b, 0o600)
}

// rollBackQueue brings NATS back as it was some time ago: what a power cut does
// to a server that acknowledges before it syncs.
func rollBackQueue(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
	old := filepath.Join(k.dir, "nats-old")
	defer os.RemoveAll(old)
	if err := copyTree(k.nats, old); err != nil {
		return err
	}
	pause(ctx, between(r, 2*time.Second, 8*time.Second))
	k.queue[0].kill()
	err := removeContents(k.nats)
	if err == nil {
		err = copyTree(old, k.nats)
	}
	return errors.Join(err, k.queue[0].start())
}

// silenceQueue holds back what NATS says, and what it is told too when it is to
// be silent altogether. What was held back arrives late.
func silenceQueue(altogether bool) injection {
	return func(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
		nodes := k.nodes()
		if r.IntN(2) == 0 {
			nodes = nodes[r.IntN(len(nodes)):][:1]
		}
		for _, n := range nodes {
			n.queue.down.shut()
			if altogether {
				n.queue.up.shut()
			}
		}
		pause(ctx, between(r, time.Second, 6*time.Second))
		reset := r.IntN(2) == 0
		for _, n := range nodes {
			n.queue.down.open()
			n.queue.up.open()
			if reset {
				n.queue.reset()
			}
		}
		return nil
	}
}

// invent publishes, past the program: every known job three times over, jobs
// that do not exist, things that are no job, and wake-ups for all of them.
func invent(ctx context.Context, k *stack, b *book, r *rand.Rand) error {
	conn, _, err := k.askQueue()
	if err != nil {
		return err
	}
	defer conn.Close()
	rows, err := k.sql.QueryContext(ctx, `
		(select id, task from jobs where finished_at is null order by created_at desc limit 40)
		union all (select id, task from jobs where state = 'failed' order by finished_at desc limit 20)
		union all (select id, task from jobs where state = 'completed' order by finished_at desc limit 20)`)
	if err != nil {
		return err
	}
	defer rows.Close()
	type message struct {
		task job.Task
		body string
	}
	var messages []message
	for rows.Next() {
		var m message
		if err := rows.Scan(&m.body, &m.task); err != nil {
			return err
		}
		messages = append(messages, m, m, m)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, t := range job.Tasks() {
		messages = append(messages, message{t, uuid.NewString()}, message{t, "no id at all"}, message{t, ""})
	}
	r.Shuffle(len(messages), func(i, j int) { messages[i], messages[j] = messages[j], messages[i] })
	for _, m := range messages {
		if err := conn.Publish("jobs.run."+string(m.task), []byte(m.body)); err != nil {
			return err
		}
		if m.body != "" && !strings.Contains(m.body, " ") {
			if err := conn.Publish("jobs.finished."+m.body, nil); err != nil {
				return err
			}
		}
	}
	return conn.FlushTimeout(5 * time.Second)
}

// killBackend kills one server process, which makes Postgres end all of them
// and recover.
func killBackend(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
	var pid int
	err := k.sql.QueryRowContext(ctx, `
		select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()
		order by md5(pid::text || $1) limit 1`, r.Int64()).Scan(&pid)
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

func crashDatabase(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
	k.server.crash()
	pause(ctx, between(r, 0, 2*time.Second))
	return k.server.start(ctx)
}

// writes says whether a statement may change something.
func writes(statement string) bool {
	s := strings.TrimSpace(strings.ToLower(statement))
	return strings.Contains(s, "from admit(") || !strings.HasPrefix(s, "select")
}

// cutAfterCommit lets writes be committed and loses the answer of many.
func cutAfterCommit(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
	seed := r.Uint64()
	for i, n := range k.nodes() {
		dice := make(chan bool) // a generator is not safe for concurrent use
		go func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			for {
				select {
				case dice <- r.IntN(3) == 0:
				case <-ctx.Done():
					return
				}
			}
		}()
		n.database.set(rules{after: func(ctx context.Context, s string) error {
			if writes(s) && <-dice {
				return errCut
			}
			return nil
		}})
	}
	pause(ctx, between(r, 2*time.Second, 4*time.Second))
	healNetwork(k)
	return nil
}

func slowDatabase(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
	delay := between(r, 20*time.Millisecond, 400*time.Millisecond)
	for _, n := range k.nodes() {
		n.database.set(rules{before: func(ctx context.Context, _ string) error {
			pause(ctx, delay)
			return nil
		}})
	}
	pause(ctx, between(r, 2*time.Second, 5*time.Second))
	healNetwork(k)
	return nil
}

// silenceDatabase lets one process wait for the database, longer than a lease
// at times. What was held back before the silence ended is then carried out.
func silenceDatabase(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
	n := k.nodes()[r.IntN(len(k.nodes()))]
	over := make(chan struct{})
	hold := func(ctx context.Context, _ string) error {
		select {
		case <-over:
		case <-ctx.Done():
		}
		return nil
	}
	if r.IntN(2) == 0 {
		n.database.set(rules{before: hold})
	} else {
		n.database.set(rules{after: hold})
	}
	pause(ctx, between(r, time.Second, k.lease*2))
	n.database.set(rules{})
	close(over)
	return nil
}

func resetDatabase(_ context.Context, k *stack, _ *book, _ *rand.Rand) error {
	for _, n := range k.nodes() {
		n.database.reset()
	}
	return nil
}

func healNetwork(k *stack) {
	for _, n := range k.nodes() {
		n.database.set(rules{})
		n.queue.up.open()
		n.queue.down.open()
	}
}

// breakStore takes the folder of the store away and leaves a file in its place:
// nothing can be read or written.
func breakStore(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
	store, away := filepath.Join(k.blobs, "store"), filepath.Join(k.blobs, "away")
	if err := os.Rename(store, away); err != nil {
		return err
	}
	err := os.WriteFile(store, nil, 0o600)
	pause(ctx, between(r, time.Second, 4*time.Second))
	return errors.Join(err, os.Remove(store), os.Rename(away, store))
}

// fillStore leaves no room on the store's disk. Where none could be mounted,
// the program was built to take a file for a full disk: see enospc.edit.
func fillStore(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
	return full(ctx, filepath.Join(k.blobs, "full"), k.smallStore, between(r, time.Second, 4*time.Second))
}

// fillQueue leaves NATS no room. It gives JetStream up until it is started
// anew.
func fillQueue(ctx context.Context, k *stack, b *book, r *rand.Rand) error {
	err := full(ctx, filepath.Join(k.nats, "full"), true, between(r, 2*time.Second, 5*time.Second))
	return errors.Join(err, restartQueue(nil)(ctx, k, b, r))
}

// fillDatabase leaves Postgres no room, also not for its log of changes: it may
// stop, and is started again when there is room.
func fillDatabase(ctx context.Context, k *stack, _ *book, r *rand.Rand) error {
	err := full(ctx, filepath.Join(k.server.dir, "full"), true, between(r, 3*time.Second, 8*time.Second))
	if !k.server.running() {
		k.server.crash()
		err = errors.Join(err, k.server.start(ctx))
	}
	return err
}

// full writes a file until nothing more fits, and removes it after a while.
func full(ctx context.Context, path string, fill bool, d time.Duration) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	for b := make([]byte, 64<<10); fill && err == nil; {
		_, err = f.Write(b)
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	pause(ctx, d)
	return errors.Join(err, f.Close(), os.Remove(path))
}

func removeContents(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// copyTree copies files that may change or go meanwhile, as a disk does.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rest, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rest)
		if entry.IsDir() {
			return os.MkdirAll(target, 0o700)
		}
		in, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.OpenFile(target, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		if err := errors.Join(err, out.Close()); err != nil {
			return fmt.Errorf("copy %s: %w", rest, err)
		}
		return nil
	})
}
