package bus

import (
	"strings"

	"pictor/internal/job"
)

// Every name that NATS knows of Pictor.
const (
	stream          = "JOBS"
	runSubjects     = "jobs.run.*"     // what the stream captures: one message per queued job
	runPrefix       = "jobs.run."      // + task; the payload is the job's id
	finishedPrefix  = "jobs.finished." // + id, core NATS: a job became final; no payload
	finishedAll     = "jobs.finished.*"
	revokedSubject  = "keys.revoked" // core NATS: a key was revoked or an account deleted; the payload is the key's hash
	consumerPrefix  = "run-"         // + task: one durable pull consumer per task
	messageIDHeader = "Nats-Msg-Id"
)

func runSubject(t job.Task) string { return runPrefix + string(t) }

func consumerName(t job.Task) string { return consumerPrefix + string(t) }

func finishedSubject(id job.ID) string { return finishedPrefix + string(id) }

func finishedID(subject string) job.ID {
	return job.ID(strings.TrimPrefix(subject, finishedPrefix))
}
