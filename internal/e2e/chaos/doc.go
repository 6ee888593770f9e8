// Package chaos proves on the real program that money and jobs survive
// anything: `pictor serve` and `pictor worker` as processes, a Postgres of its
// own, NATS processes, and clients that keep their own book of every answer.
// It holds tests only.
//
//	go test ./internal/e2e/chaos                                a few faults and the directed tests
//	go test ./internal/e2e/chaos -run TestChaos -v -timeout 30m -args -minutes 10 -seed 1
//	go test ./internal/e2e/chaos -run TestMutants -v -timeout 30m -args -mutants
//
// TestChaos deals faults at random and prints its seed first. The seed decides
// which faults come, in which order, how long and to whom; what the program was
// doing at that moment is not repeatable, it is what the clients and the logs
// are for. The directed tests meet one moment each, by holding a statement back
// on its way to or from the database. TestMutants shows that they can fail.
//
// The program is built with shorter leases and rounds (mutants/clocks.edit), so
// that minutes hold many takeovers; -clocks shipped takes it as it is.
//
// # What is checked
//
// While it runs: every answer is one that the contract allows; no client sees a
// job go back (C3); no account runs more than five jobs; after every fault the
// invariants of `pictor doctor` hold and a new picture is completed. At the end:
// every job is final, every completed one has a result that decodes and has its
// size, every job that a client was told of exists (C1), whatever was refused
// changed nothing (C2), the bills are the ledger (C4), the queue is empty, and
// no constraint of the tables ever had to stop the program.
//
// # The plan
//
// The rows of the fault plan in the reliability notes, and where they are:
//
//	 1  worker dies mid-job               TestChaos: worker killed
//	 2  worker pauses past its lease      TestChaos: worker stopped; TestWorker_that_lost_its_lease_changes_nothing, TestJob_that_was_given_up_stays_refunded
//	 3  API dies around the publish       TestChaos: API killed (three ways); TestCharge_without_a_job_is_given_back, TestRepeat_after_a_lost_answer_makes_one_job
//	 4  NATS killed                       TestChaos
//	 5  JetStream store lost              TestChaos; TestJobs_outlive_a_queue_that_lost_its_store
//	 6  JetStream rolled back, damaged    TestChaos, two faults
//	 7  Postgres backend killed           TestChaos
//	 8  Postgres stopped at once          TestChaos
//	 9  acknowledged commit lost          TestAccepted_jobs_outlive_a_crash_of_Postgres; synchronous_commit=off is a mutant that fails it
//	10  network to Postgres and NATS      TestChaos: cut off after commit, slow, silent, reset; TestAdmission_finds_out_whether_it_was_committed.
//	                                      Not to the store: a folder has no network
//	11  wake-ups lost or doubled          TestChaos: NATS silent, messages doubled and invented; TestWaiter_misses_no_wakeup
//	12  messages doubled and phantom      TestChaos
//	13  poison picture                    TestPicture_that_kills_its_workers_is_given_up, ..._takes_no_other_with_it; the worker is killed at the moment
//	                                      when the picture is done, because no picture is known that crashes it
//	14  race for the cap                  TestLimits_hold_against_many_clients; longer, without HTTP, in internal/postgres
//	15  race for the balance              the same
//	16  finish against sweep and cancel   in internal/postgres, where a barrier can be held
//	17  clock skew in a worker            left out: no clock but the database's is ever compared, and a shifted clock needs a
//	                                      library loaded into the process
//	18  disk full                         TestChaos, for the store, NATS and Postgres, each on a small tmpfs. Where nothing can be
//	                                      mounted the store is built to return ENOSPC (mutants/enospc.edit), and the other two are left out
//	19  store fails, result missing       TestChaos: store broken. Corrupt objects are left out: nothing reads a result but its client
//	20  slow and silent clients           left out: in internal/httpapi, where a connection can be held
//	21  SSRF                              left out: in internal/intake
//	22  bombs                             left out: in internal/intake and internal/vips
//	23  overload                          left out: a benchmark, which two shared cores cannot judge. The greedy account asks for more than it may
//	24  rolling restart                   TestRolling_restart_fails_no_request; TestChaos: worker and API asked to stop
//	25  all at once                       TestChaos: every third fault has another beside it
//	 M  mutants                           TestMutants
//
// Beyond the plan: TestQueue_of_three_servers_loses_nothing_with_two_of_them
// kills two of three NATS servers that keep the queue together.
package chaos
