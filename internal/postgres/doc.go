// Package postgres owns every SQL statement: accounts, keys, jobs and the
// ledger. Postgres is the only truth of Pictor; whatever else says something
// about a job is a hint.
//
// # Transactions
//
// Each transition of internal/job is one method, one file and one transaction,
// and for the database one statement: an update whose WHERE is the guard, with
// the money in the same statement. The rows it changed are the verdict. No
// transaction ever spans a network call other than its own.
//
//	file           guard                                              with it
//	admit.go       balance >= cost, running < 5, account not deleted  job, charge, running+1
//	enqueued.go    not cancelled                                      -
//	cancel.go      queued, never claimed, publish not confirmed       refund, running-1
//	claim.go       queued, given back, or lease over                  fence+1, lease; after the last attempt refund, running-1
//	progress.go    processing under this fence                        lease, heartbeat
//	giveback.go    processing under this fence                        lapses+1 after an error
//	complete.go    processing under this fence                        running-1
//	fail.go        processing under this fence                        refund, running-1
//	stuck.go       no sign of life                                    refund, running-1
//
// # Lock order
//
// Job row, then account row, one of each. Admit takes the account first, but
// the only other row it then writes is a job that nobody else can see yet.
// So there is no cycle; should the database report a deadlock all the same,
// the statement is repeated.
//
// # Repeats
//
// lib/pq calls a connection bad when the server closes it, and database/sql
// then silently repeats the statement on another one, also when the first run
// had committed. Every single-statement method here therefore gives the same
// verdict when it runs twice. What cannot (credits, new accounts, new keys)
// runs in an explicit transaction, which database/sql never repeats.
//
// # pgbouncer
//
// Statements go out unnamed in one round trip (binary_parameters), and nothing
// here belongs to a session: no prepared statements, no SET, no advisory locks,
// no LISTEN. A pgbouncer that pools transactions may stand in between; only
// migrations need the server itself.
package postgres
