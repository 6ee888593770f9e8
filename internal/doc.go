/*
Package internal is the map of Pictor.

A paid image API: a request brings one picture, is charged in Point, becomes a
job, and the job's result is read later. Words at the bottom, tools beside each
other, stages in the order of the flow, HTTP only at the edge, wiring only in
app. A request is read top to bottom, each stage once; nothing calls back up.

# The flow

	 #  step                          code                              durable afterwards
	 1  key checked, request decoded  gen -> httpapi                    -
	 2  bytes read and checked        intake                            -
	 3  input stored                  admission -> blob in/<id>         input (garbage if 4 refuses; sweep deletes it)
	 4  charged and recorded          postgres.Admit                    job queued, ledger -cost
	 5  queued                        bus.Publish after the commit;     message
	                                  else postgres.Cancel -> 502
	 6  claimed                       postgres.Claim: fence+1, lease    job processing
	 7  decode, model, encode         render                            -
	 8  result stored                 blob out/<id>/<fence>             result
	 9  completed,                    postgres.Complete                 final state
	    or failed and refunded        postgres.Fail, by the fence       final state, ledger +cost
	10  waiter woken                  bus.Finished -> wait -> the row   -
	11  result read                   httpapi or results -> blob        -
	 *  a process died                sweep                             republished, or failed and refunded

Postgres is the only truth. JetStream is a hint: a message may be lost, doubled
or late, and nothing may go wrong.

# Glossary

One word per idea, in Go, SQL, subjects and prose.

	job       one charged piece of work on one image
	task      the kind of work: remove-bg, upscale-2x, upscale-4x
	state     where a job stands: queued, processing, completed, failed ("status" in JSON)
	point     the currency; amounts are whole milli-Points
	charge    the ledger row that pays for a job
	refund    the ledger row that gives a charge back
	claim     a worker takes a job; the lease is how long that holds
	fence     the number of the claim; writes under an older one change nothing
	complete  the result is stored and published
	fail      the job ends without a result and is refunded
	sweep     what a dead process left behind is brought to its end

# Imports

	cmd -> app -> httpapi, results, stages, tools -> tools -> words

	words   point job fault apikey logctx             the standard library only, no I/O
	tools   postgres cluster bus blob vips onnx       words and one foreign technology each; never each other
	        models
	stages  intake admission work render wait sweep   words and tools; never each other, except work -> render
	edge    httpapi results                           HTTP

gen is imported by httpapi, the SDK (the root package) and e2e; testkit by tests
only. TestImports enforces it. If a line needs two tools at once it belongs in a
stage; if no stage fits, the design is wrong.

# To add a task

 1. openapi/openapi.json: the enum Task, the endpoint, the examples of /tasks
 2. go generate ./... , and commit gen/ by itself
 3. internal/job: the constant, Tasks, Cost, limits
 4. db/migrations: the CHECK on jobs.task
 5. internal/models: the model; internal/render: the pipeline and its golden
 6. internal/httpapi: the handler and its conversion
 7. pictor.go: the SDK's method; cmd/pictor: the client command
 8. README: the endpoint table
*/
package internal
