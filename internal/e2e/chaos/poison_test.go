package chaos_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pictor/internal/job"
	"pictor/internal/point"
)

// A picture that kills every worker that takes it is given up, and the pictures
// beside it are not, although they were in the process when it died, again and
// again.
//
// The worker has room for all of them. The good ones do not end while the bad
// one is in work, and the bad one kills when they have been begun beside it.
func TestPicture_that_kills_its_workers_takes_no_other_with_it(t *testing.T) {
	t.Parallel()
	const good = 2
	k := newStack(t, size{serves: 1, workers: 1, slots: 1 + good, stuck: time.Hour})
	k.begin(t, k.serves[0])
	l, a := k.client(t, 10*point.Point)
	bad := l.ask(t, a)
	var rest []job.ID
	for range good {
		rest = append(rest, l.ask(t, a))
	}

	const inWork = `(state = 'processing' and lease_until > clock_timestamp())`
	beforeLast := fmt.Sprintf(`lapses < %d`, job.MaxClaims-1)
	count := func(ctx context.Context, condition string) (n int) {
		if err := k.sql.QueryRowContext(ctx, `select count(*) from jobs where `+condition, string(bad)).Scan(&n); err != nil {
			return -1
		}
		return n
	}
	var beside []int // good pictures in work when the worker died
	var mu sync.Mutex
	w := k.workers[0]
	w.database.set(rules{before: func(ctx context.Context, s string) error {
		if !strings.Contains(s, completing) {
			return nil
		}
		ctx, end := context.WithCancel(ctx)
		defer end()
		go func() { // nothing that waits here outlives the worker that sent it
			select {
			case <-w.ended():
				end()
			case <-ctx.Done():
			}
		}()
		wait := func(while func() bool) error {
			for while() {
				if !pause(ctx, 20*time.Millisecond) {
					return errCut
				}
			}
			return nil
		}
		if !strings.Contains(s, string(bad)) {
			return wait(func() bool { return count(ctx, `id = $1 and (fence = 0 or `+inWork+`)`) != 0 })
		}
		if err := wait(func() bool {
			return count(ctx, `id = $1 and `+beforeLast) != 0 &&
				count(ctx, `id <> $1 and finished_at is null and `+beforeLast+` and not `+inWork) != 0
		}); err != nil {
			return err
		}
		mu.Lock()
		beside = append(beside, count(ctx, `id <> $1 and `+inWork))
		mu.Unlock()
		w.signal(syscall.SIGKILL)
		<-ctx.Done()
		return errCut
	}})
	if err := w.start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.After(3 * time.Minute); !k.job(t, bad).State.Final(); {
		select {
		case <-w.ended(): // perhaps before it said that it is ready
			if err := w.start(); err != nil {
				t.Fatal(err)
			}
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			t.Fatal("the picture is not given up within three minutes")
		}
	}
	k.awaitState(t, bad, job.Failed, time.Minute)
	for _, id := range rest {
		k.awaitState(t, id, job.Completed, time.Minute)
	}
	mu.Lock()
	defer mu.Unlock()
	t.Logf("the worker died with %v good pictures in work", beside)
	if len(beside) == 0 || slices.Max(beside) == 0 {
		t.Error("the worker never died with good pictures in work: the test proves nothing")
	}
	k.close(t, l)
}
