package wait

import (
	"context"
	"log/slog"
	"sync"

	"pictor/internal/job"
)

// readers is how many statements run side by side. More than one, so that a
// connection that hangs does not hold everybody up.
const readers = 4

// reader reads rows for many at a time: whoever asks while all statements are
// under way gets an answer from the next, with all others who asked meanwhile.
// So 10,000 clients that come, are woken or are sent away at once take a few
// statements. A statement begins after the questions that it answers, so nobody
// is told what was true before.
type reader struct {
	read readRows
	log  *slog.Logger

	mu      sync.Mutex
	asked   []question // that no statement has taken
	running int        // statements under way
}

type question struct {
	id     job.ID
	answer chan<- answer // has room for it: who asked may have gone
}

type answer struct {
	job *job.Job // nil: there is none
	err error
}

// job returns the job as it is now, nil when there is none.
func (r *reader) job(ctx context.Context, id job.ID) (*job.Job, error) {
	answers := make(chan answer, 1)
	r.mu.Lock()
	r.asked = append(r.asked, question{id, answers})
	if r.running < readers {
		r.running++
		go r.run()
	}
	r.mu.Unlock()
	select {
	case a := <-answers:
		return a.job, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// run answers until there is no question.
func (r *reader) run() {
	for {
		questions := r.take()
		if questions == nil {
			return
		}
		ids := make([]job.ID, len(questions))
		for i, q := range questions {
			ids[i] = q.id
		}
		ctx, done := context.WithTimeout(context.Background(), readTimeout)
		jobs, err := r.read(ctx, ids)
		done()
		if err != nil {
			r.log.Warn("could not look at jobs that are waited for", "jobs", len(ids), "error", err)
		}
		for _, q := range questions {
			q.answer <- answer{jobs[q.id], err}
		}
	}
}

func (r *reader) take() []question {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := min(len(r.asked), batch)
	if n == 0 {
		r.asked = nil
		r.running--
		return nil
	}
	questions := r.asked[:n:n]
	r.asked = r.asked[n:]
	return questions
}
