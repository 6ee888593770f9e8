package postgres

import (
	"context"
	"fmt"

	"github.com/lib/pq"

	"pictor/internal/job"
)

// Alive is a worker's sign of life, and the tasks it takes. It must come
// several times within the time after which Stuck gives queued jobs up. A
// worker that stops leaves its last sign behind, so that a restart is no
// reason to give up what is queued; signs older than a day are removed.
func (db *DB) Alive(ctx context.Context, worker string, tasks []job.Task) error {
	names := make([]string, len(tasks))
	for i, t := range tasks {
		names[i] = string(t)
	}
	_, err := db.exec(ctx, `
		with old as (
			delete from workers where id in (
				select id from workers where seen_at < now() - interval '1 day' and id <> $1 for update skip locked)
		)
		insert into workers (id, tasks, seen_at) values ($1, $2, clock_timestamp())
		on conflict (id) do update set tasks = excluded.tasks, seen_at = excluded.seen_at`, worker, pq.Array(names))
	if err != nil {
		return fmt.Errorf("sign of life of worker %s: %w", worker, err)
	}
	return nil
}
