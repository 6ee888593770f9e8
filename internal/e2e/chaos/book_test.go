package chaos_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"sync"
	"time"

	"pictor/internal/job"
	"pictor/internal/point"
)

// book is what the clients saw: every request, every answer, every state of
// every job. It shares nothing with the server, so that the two can be held
// against each other.
type book struct {
	mu         sync.Mutex
	accounts   []*account
	tickets    []*ticket
	jobs       map[job.ID]*seen
	problems   []string
	lateByMost time.Duration // an answer to a long poll, beyond the time asked for
	row        *row          // whom answers are counted for: the fault of the moment
}

// account is one customer and its key.
type account struct {
	id      int64
	name    string
	key     string
	opening point.Amount
}

// ticket is one thing that a client wanted: a job, in as many attempts as it
// took.
type ticket struct {
	account *account
	task    job.Task
	key     string // Idempotency-Key, "" for none
	began   time.Time
	unknown int  // attempts without an answer, or with one that does not say what happened
	denied  bool // the last answer said that nothing was charged
	job     job.ID
}

// seen is a job as its client came to know it.
type seen struct {
	ticket   *ticket
	state    job.State
	progress int
	refunded bool
	billed   billing
	width    int // of the input; all of them are square
}

// answer is the part of the API's Job that is held to account.
type answer struct {
	ID       job.ID       `json:"id"`
	Task     job.Task     `json:"task"`
	Status   job.State    `json:"status"`
	Progress int          `json:"progress"`
	Message  string       `json:"message"`
	Cost     point.Amount `json:"cost"`
	Refunded bool         `json:"refunded"`
	Result   *string      `json:"result_url"`
	Billing  *billing     `json:"billing"`
}

type billing struct {
	Cost    point.Amount `json:"cost"`
	Balance point.Amount `json:"balance"`
}

func newBook() *book { return &book{jobs: make(map[job.ID]*seen), row: new(row)} }

// problem notes something that must never happen.
func (b *book) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.note(format, args...)
}

func (b *book) note(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
	b.row.violations++
}

func (b *book) open(k *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tickets = append(b.tickets, k)
}

// count notes the status of an answer; 0 is none.
func (b *book) count(status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.row.answers(status)
}

// admission notes the answer to a request for a job.
func (b *book) admission(status int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.row.admissions = append(b.row.admissions, admissionAnswer{time.Now(), status})
}

// leaves says whether a server was asked to stop.
func (b *book) leaves(base string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.row.away == base
}

// refusal notes that a server took no connection.
func (b *book) refusal(base string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.row.refusals == nil {
		b.row.refusals = make(map[string]int)
	}
	b.row.refusals[base]++
}

// cutOff notes a request that got no answer, or half of one.
func (b *book) cutOff(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.row.answers(noAnswer)
	b.row.cuts = append(b.row.cuts, err.Error())
}

// blank notes an attempt whose outcome the client does not know.
func (b *book) blank(k *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.unknown++
	k.denied = false
}

// denied notes an answer that says that nothing was charged, whatever was
// unknown before.
func (b *book) denied(k *ticket) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.denied = true
}

// accepted notes the answer that gave a ticket its job.
func (b *book) accepted(k *ticket, a answer, width int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.denied = false
	switch {
	case a.Billing == nil:
		b.note("job %s was accepted without a bill", a.ID)
		return
	case a.Task != k.task || a.Cost != k.task.Cost() || a.Billing.Cost != a.Cost:
		b.note("job %s: asked for %s at %s, got %s at %s, billed %s", a.ID, k.task, k.task.Cost(), a.Task, a.Cost, a.Billing.Cost)
	case k.job != "" && k.job != a.ID:
		b.note("key %s made two jobs: %s and %s", k.key, k.job, a.ID)
	}
	k.job = a.ID
	if known := b.jobs[a.ID]; known == nil {
		b.jobs[a.ID] = &seen{ticket: k, state: job.Queued, billed: *a.Billing, width: width}
	} else if known.ticket != k {
		b.note("job %s was given to two requests", a.ID)
	} else if known.billed != *a.Billing {
		b.note("job %s was billed as %v, then as %v", a.ID, known.billed, *a.Billing)
	}
	b.look(a)
}

// looked notes an answer about a job (C3: what a client sees never goes back).
func (b *book) looked(a answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.look(a)
}

func (b *book) look(a answer) {
	s := b.jobs[a.ID]
	if s == nil {
		b.note("an answer speaks of job %s, which nobody asked for", a.ID)
		return
	}
	rank := map[job.State]int{job.Queued: 0, job.Processing: 1, job.Completed: 2, job.Failed: 2}
	switch {
	case s.state.Final() && (a.Status != s.state || a.Refunded != s.refunded):
		b.note("job %s was %s (refunded %t) and is %s (refunded %t)", a.ID, s.state, s.refunded, a.Status, a.Refunded)
	case rank[a.Status] < rank[s.state] || a.Progress < s.progress:
		b.note("job %s went back from %s %d%% to %s %d%%", a.ID, s.state, s.progress, a.Status, a.Progress)
	case a.Refunded != (a.Status == job.Failed):
		b.note("job %s is %s and refunded is %t", a.ID, a.Status, a.Refunded)
	case (a.Result != nil) != (a.Status == job.Completed):
		b.note("job %s is %s and its result URL is there: %t", a.ID, a.Status, a.Result != nil)
	}
	if !s.state.Final() && a.Status.Final() {
		if a.Status == job.Completed {
			b.row.completed++
		} else {
			b.row.refunded++
		}
	}
	s.state, s.progress, s.refunded = a.Status, a.Progress, a.Refunded
}

func (b *book) late(by time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lateByMost = max(b.lateByMost, by)
}

// begin counts from now on for another row.
func (b *book) begin(r *row) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.row = r
}

// unfinished lists the jobs that their clients have not seen final.
func (b *book) unfinished() []*seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	var open []*seen
	for _, s := range b.jobs {
		if !s.state.Final() {
			open = append(open, s)
		}
	}
	return open
}

// completed lists the jobs that were seen completed.
func (b *book) completed() []*seen {
	b.mu.Lock()
	defer b.mu.Unlock()
	var done []*seen
	for _, s := range b.jobs {
		if s.state == job.Completed {
			done = append(done, s)
		}
	}
	return done
}

// record is a job as the database has it.
type record struct {
	account  int64
	task     job.Task
	state    job.State
	cost     point.Amount
	key      sql.NullString
	charged  point.Amount
	balance  point.Amount // right after the charge
	returned point.Amount
}

func readRecords(ctx context.Context, db *sql.DB) (map[job.ID]record, error) {
	rows, err := db.QueryContext(ctx, `
		select j.id, j.account_id, j.task, j.state, j.cost, j.idempotency_key,
			coalesce(-c.amount, 0), coalesce(c.balance_after, 0), coalesce(r.amount, 0)
		from jobs j
		left join ledger c on c.job_id = j.id and c.kind = 'charge'
		left join ledger r on r.job_id = j.id and r.kind = 'refund'`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	records := make(map[job.ID]record)
	for rows.Next() {
		var id job.ID
		var r record
		if err := rows.Scan(&id, &r.account, &r.task, &r.state, &r.cost, &r.key, &r.charged, &r.balance, &r.returned); err != nil {
			return nil, err
		}
		records[id] = r
	}
	return records, rows.Err()
}

// audit holds the book against the database, when everything is at rest:
//
//	C1  every job that a client was told of exists, as it was told
//	C2  what was refused changed nothing: every job that no client was told of
//	    is refunded, or its request's outcome was unknown to the client
//	C4  what the bills say is what the ledger says
//
// C3 is watched while the answers come in.
func (b *book) audit(records map[job.ID]record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	charged := make(map[int64]point.Amount)
	for id, s := range b.jobs {
		r, ok := records[id]
		switch {
		case !ok:
			b.note("C1: job %s was accepted and does not exist", id)
			continue
		case r.account != s.ticket.account.id || r.task != s.ticket.task:
			b.note("C1: job %s is %s of account %d, and was accepted as %s of account %d", id, r.task, r.account, s.ticket.task, s.ticket.account.id)
		case s.state.Final() && r.state != s.state:
			b.note("C1: job %s was seen %s and is %s", id, s.state, r.state)
		case r.charged != s.billed.Cost || r.balance != s.billed.Balance:
			b.note("C4: job %s was billed %s, balance %s; the ledger says %s, %s", id, s.billed.Cost, s.billed.Balance, r.charged, r.balance)
		}
		charged[s.ticket.account.id] += s.billed.Cost
	}

	// Requests without a known outcome: by key where there is one, else by
	// account and task.
	type kind struct {
		account int64
		task    job.Task
	}
	byKey, byKind := make(map[string]bool), make(map[kind]int)
	for _, k := range b.tickets {
		if k.unknown == 0 {
			continue
		}
		if k.key != "" {
			byKey[k.key] = !k.denied
		} else {
			byKind[kind{k.account.id, k.task}] += k.unknown
		}
	}
	for id, r := range records {
		if b.jobs[id] != nil {
			continue
		}
		charged[r.account] += r.charged
		if r.state == job.Failed {
			continue // refunded, which the invariants check
		}
		anonymous := kind{r.account, r.task}
		switch {
		case r.key.Valid && byKey[r.key.String]:
		case !r.key.Valid && byKind[anonymous] > 0:
			byKind[anonymous]--
		default:
			b.note("C2: job %s (%s, key %q) is charged, and every request that could have made it was refused", id, r.state, r.key.String)
		}
	}
	for _, a := range b.accounts {
		var ledger point.Amount
		for _, r := range records {
			if r.account == a.id {
				ledger += r.charged
			}
		}
		if ledger != charged[a.id] {
			b.note("C4: account %s: the bills say %s, the ledger says %s", a.name, charged[a.id], ledger)
		}
	}
}

// fatal is every problem so far, the first few in full.
func (b *book) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.problems)
}
