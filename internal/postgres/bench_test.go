package postgres_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"pictor/internal/fault"
	"pictor/internal/job"
	"pictor/internal/testkit/pgtest"
)

// Refusals on one account that runs all it may: an attacker's cheapest request,
// and the one that must cost least.
func BenchmarkAdmit_refuses_on_one_capped_account(b *testing.B) {
	for _, key := range []string{"", "key"} {
		b.Run("key="+key, func(b *testing.B) {
			books := openAny(b, 16) // the default budget of a process
			a := pgtest.NewAccount(b, books.DB, 1_000_000)
			for range job.MaxRunning {
				pgtest.Queued(b, books.DB, a.ID)
			}
			b.SetParallelism(32) // clients per core
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				ask := keyed(b, a.ID, key, "one")
				for pb.Next() {
					if _, err := books.Admit(ctx(), ask); refused(b, err) != fault.TooManyJobs {
						b.Error("not refused: ", err)
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "refusals/s")
		})
	}
}

// A job's whole life in the database: admitted, confirmed, claimed, one
// heartbeat, completed.
func BenchmarkLife_of_a_job(b *testing.B) {
	for _, accounts := range []int{1, 100} {
		b.Run(fmt.Sprintf("accounts=%d", accounts), func(b *testing.B) {
			books := openAny(b, 16) // the default budget of a process
			var ids []int64
			for range accounts {
				ids = append(ids, pgtest.NewAccount(b, books.DB, 1_000_000_000).ID)
			}
			var turn atomic.Int64
			b.SetParallelism(16)
			b.ResetTimer()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					account := ids[int(turn.Add(1))%accounts]
					admitted, err := books.Admit(ctx(), pgtest.Admission(b, account))
					if err != nil {
						if refused(b, err) != fault.TooManyJobs {
							b.Error(err)
						}
						continue
					}
					id := admitted.Job.ID
					if _, err := books.Enqueued(ctx(), id); err != nil {
						b.Error(err)
					}
					j, _, err := books.Claim(ctx(), id, hour)
					if err != nil {
						b.Error(err)
					}
					if _, err := books.Progress(ctx(), id, j.Fence, 50, "", hour); err != nil {
						b.Error(err)
					}
					if _, err := books.Complete(ctx(), id, j.Fence, result(id)); err != nil {
						b.Error(err)
					}
				}
			})
			done := books.number(b, `select count(*) from jobs where state = 'completed'`)
			b.ReportMetric(float64(done)/b.Elapsed().Seconds(), "jobs/s")
		})
	}
}
