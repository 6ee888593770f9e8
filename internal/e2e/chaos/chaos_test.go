package chaos_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"pictor/internal/job"
	"pictor/internal/point"
)

// TestChaos runs the program under load while everything that it stands on
// fails, and then asks: is the money right, has every job ended, did any client
// see what it must not?
func TestChaos(t *testing.T) {
	t.Logf("seed %d", *seed) // first of all: nothing can be repeated without it
	r := rand.New(rand.NewPCG(uint64(*seed), 0))
	k := newStack(t, size{serves: 2, workers: 2, slots: 2, ownCluster: true})
	k.begin(t, k.nodes()...)

	b := newBook()
	customers := []*account{
		k.open(t, "rich-1", 100_000*point.Point),
		k.open(t, "rich-2", 100_000*point.Point),
		k.open(t, "rich-3", 100_000*point.Point),
		k.open(t, "greedy", 100_000*point.Point), // with more clients than it may have jobs
		k.open(t, "poor", 5*point.Point),
	}
	probes := k.open(t, "probe", 100_000*point.Point)
	b.accounts = append(append(b.accounts, customers...), probes)
	l := newLoad(t, b, k.bases())

	asking, stopAsking := context.WithCancel(t.Context())
	following, stopFollowing := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	stop := func() { stopAsking(); stopFollowing(); clients.Wait() }
	defer stop()
	for i, a := range customers {
		n := 2
		if a.name == "greedy" {
			n = 8
		}
		for j := range n {
			clients.Go(func() { l.run(asking, following, a, rand.New(rand.NewPCG(uint64(*seed), uint64(100*i+j+1)))) })
		}
	}
	clients.Go(func() { watchCap(asking, k, b) })

	rows := inject(t, k, l, probes, r)

	// At rest: everything has been set right, nobody asks any more.
	began := time.Now()
	b.begin(&row{name: "afterwards"})
	stopAsking()
	patience := k.stuck + time.Minute
	drained, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	context.AfterFunc(drained, stopFollowing)
	clients.Wait()
	l.settle(drained, r)
	k.rest(drained)
	t.Logf("drained in %s", time.Since(began).Round(100*time.Millisecond))
	verdict(t, k, b)
	if left := k.messagesLeft(t); len(left) > 0 {
		b.problem("messages come again and again:\n%s", strings.Join(left, "\n"))
	}
	t.Logf("%s", table(rows, b))
	counters(t, k, b)
	for _, p := range b.all() {
		t.Error(p)
	}
}

const twoAtOnce = "(two at once)"

// inject deals the faults one after the other, every third one with another
// beside it, and returns their account.
func inject(t *testing.T, k *stack, l *load, probes *account, r *rand.Rand) []*row {
	deck := faults(k)
	if *minutes == 0 {
		deck = slices.DeleteFunc(deck, func(f fault) bool { return !f.urgent })
	}
	calm, two := &row{name: "(no fault)"}, &row{name: twoAtOnce}
	rows := []*row{calm}
	for _, f := range deck {
		rows = append(rows, &row{name: f.name})
	}
	rows = append(rows, two)
	rowOf := func(f fault) *row {
		return rows[1+slices.IndexFunc(deck, func(g fault) bool { return g.name == f.name })]
	}
	l.book.begin(calm)
	calm.recovery = append(calm.recovery, recovery(t, k, l, probes, r))

	over := time.After(time.Duration(*minutes * float64(time.Minute)))
	for round := 0; ; round++ {
		order := slices.Clone(deck)
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for i := 0; i < len(order); i++ {
			if round > 0 || *minutes > 0 { // the short run deals every fault once
				select {
				case <-over:
					return rows
				default:
				}
			}
			at := order[i : i+1]
			if i+1 < len(order) && order[i].disjoint(order[i+1]) && r.IntN(3) == 0 {
				at = order[i : i+2]
				i++
			}
			counted := rowOf(at[0])
			if len(at) == 2 {
				counted = two
				two.injected++
			}
			l.book.begin(counted)
			var together sync.WaitGroup
			for _, f := range at {
				rowOf(f).injected++
				dice := rand.New(rand.NewPCG(r.Uint64(), 0))
				together.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					if err := f.inject(ctx, k, l.book, dice); err != nil {
						l.book.problem("%s could not be injected or set right: %v", f.name, err)
					}
				})
			}
			together.Wait()
			counted.recovery = append(counted.recovery, recovery(t, k, l, probes, r))
			checkBooks(t, k, l.book)
			if !pause(t.Context(), between(r, 0, time.Second)) {
				return rows
			}
		}
		if *minutes == 0 {
			return rows
		}
	}
}

// recovery returns how long after a fault the program has completed a picture
// that was asked for after it.
func recovery(t *testing.T, k *stack, l *load, probes *account, r *rand.Rand) time.Duration {
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), k.stuck+time.Minute)
	defer cancel()
	for ctx.Err() == nil {
		ticket := &ticket{account: probes, task: job.Upscale2x, key: fmt.Sprintf("probe-%d", r.Uint64()), began: time.Now()}
		l.book.open(ticket)
		if id, ok := l.submit(ctx, ticket, 5, r); ok {
			l.follow(ctx, probes, id, r)
			l.book.mu.Lock()
			state := l.book.jobs[id].state
			l.book.mu.Unlock()
			if state == job.Completed {
				return time.Since(began)
			}
		}
	}
	l.book.problem("no picture was completed within %s after a fault", time.Since(began).Round(time.Second))
	return time.Since(began)
}

// watchCap looks again and again for an account with more jobs than it may
// have: afterwards nobody could tell.
func watchCap(ctx context.Context, k *stack, b *book) {
	for pause(ctx, 20*time.Millisecond) {
		var most int
		err := k.sql.QueryRowContext(ctx, `
			select coalesce(max(n), 0) from (
				select count(*) as n from jobs where state in ('queued', 'processing') group by account_id) j`).Scan(&most)
		if err == nil && most > job.MaxRunning {
			b.problem("an account ran %d jobs at once", most)
		}
	}
}

// rest returns when the database has no unfinished job: there are some that no
// client knows of, because their answers were lost.
func (k *stack) rest(ctx context.Context) {
	for {
		var n int
		err := k.sql.QueryRowContext(ctx, `select count(*) from jobs where finished_at is null`).Scan(&n)
		if err == nil && n == 0 || !pause(ctx, 50*time.Millisecond) {
			return
		}
	}
}

// checkBooks asks the program's own invariants, which hold at any moment.
func checkBooks(t testing.TB, k *stack, b *book) {
	t.Helper()
	all, err := k.db.Invariants(t.Context(), k.stuck)
	if err != nil {
		b.problem("the invariants could not be checked: %v", err)
	}
	for _, v := range all {
		if v.Count != 0 {
			b.problem("%s: %d. %s", v.Name, v.Count, v.Hint)
		}
	}
}

// verdict holds everything against everything, when nothing moves any more.
func verdict(t testing.TB, k *stack, b *book) {
	t.Helper()
	checkBooks(t, k, b)
	records, err := readRecords(t.Context(), k.sql)
	if err != nil {
		t.Fatal(err)
	}
	for id, r := range records {
		if !r.state.Final() {
			b.problem("job %s is still %s in the database", id, r.state)
		}
	}
	b.audit(records)
	for _, a := range b.accounts {
		now, err := k.db.AccountByID(t.Context(), a.id)
		if err != nil {
			t.Fatal(err)
		}
		want := a.opening
		for _, r := range records {
			if r.account == a.id {
				want += r.returned - r.charged
			}
		}
		if now.Balance != want {
			b.problem("account %s has %s Point, want %s", a.name, now.Balance, want)
		}
	}
	for _, complaint := range constraintsBroken(k.server) {
		b.problem("a constraint of the tables had to stop the program: %s", complaint)
	}
}

var refused = regexp.MustCompile(`ERROR: .*(violates (check|unique|foreign key|not-null|exclusion)|append-only|deadlock detected)`)

// constraintsBroken finds what the last line of defence had to refuse. Only a
// repeated admission may meet its own job: see postgres.Admit.
func constraintsBroken(d *database) []string {
	var found []string
	for line := range strings.Lines(d.log()) {
		if strings.Contains(line, d.marked()) && refused.MatchString(line) && !strings.Contains(line, `"jobs_pkey"`) {
			found = append(found, line)
		}
	}
	return found
}

// counters shows that the run has been where it wanted to go.
func counters(t *testing.T, k *stack, b *book) {
	var again, lapses int
	if err := k.sql.QueryRowContext(t.Context(), `
		select coalesce(sum(fence) filter (where fence > 1), 0) - count(*) filter (where fence > 1), coalesce(sum(lapses), 0) from jobs`).Scan(&again, &lapses); err != nil {
		t.Fatal(err)
	}
	reached := []struct {
		what string
		n    int
		must bool
	}{
		{"claims that took a job over", again, true},
		{"leases that ran out", lapses, true},
		{"workers that found their fence lost", k.said("another worker has the job"), true},
		{"messages published again", k.counted("republished"), true},
		{"orphans cancelled", k.counted("orphans"), false},
		{"stuck jobs given up", k.counted("stuck"), false},
		{"objects without a job deleted", k.counted("garbage"), false},
	}
	for _, c := range reached {
		t.Logf("%6d  %s", c.n, c.what)
		if c.must && c.n == 0 && *minutes >= 2 {
			b.problem("the run proves nothing about %q: there were none", c.what)
		}
	}
	t.Logf("the latest answer to a long poll came %s after its time", b.lateByMost.Round(time.Millisecond))
}

// counted sums up what the sweepers said they did.
func (k *stack) counted(what string) int {
	number := regexp.MustCompile(what + `"?[=:](\d+)`)
	n := 0
	for _, s := range k.serves {
		for _, line := range s.lines(`swept`) {
			if m := number.FindStringSubmatch(line); m != nil {
				more, _ := strconv.Atoi(m[1]) // digits
				n += more
			}
		}
	}
	return n
}

func table(rows []*row, b *book) string {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "\nfault\ttimes\tcompleted\trefunded\trecovery (median, longest)\tviolations\trequests by status")
	b.mu.Lock()
	defer b.mu.Unlock()
	total := &row{name: "all", statuses: make(map[int]int)}
	line := func(r *row) {
		recovery := "-"
		if len(r.recovery) > 0 {
			slices.Sort(r.recovery)
			recovery = fmt.Sprintf("%.1f s, %.1f s", r.recovery[len(r.recovery)/2].Seconds(), r.recovery[len(r.recovery)-1].Seconds())
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%s\t%d\t%s\n", r.name, r.injected, r.completed, r.refunded, recovery, r.violations, r.byStatus())
	}
	rows = append(rows, b.row) // that of the end
	for _, r := range rows {
		line(r)
		if r.name != twoAtOnce {
			total.injected += r.injected
		}
		total.completed += r.completed
		total.refunded += r.refunded
		total.violations += r.violations
		total.recovery = append(total.recovery, r.recovery...)
		for status, n := range r.statuses {
			total.statuses[status] += n
		}
	}
	line(total)
	_ = w.Flush() // to memory
	return out.String()
}
