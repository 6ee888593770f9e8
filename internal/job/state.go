package job

import "strconv"

// State is where a job stands. Completed and Failed are final.
type State string

// The states.
const (
	Queued     State = "queued"     // charged; waits for a worker
	Processing State = "processing" // claimed by a worker whose lease runs
	Completed  State = "completed"  // the result is stored
	Failed     State = "failed"     // refunded
)

// States lists every state.
func States() []State { return []State{Queued, Processing, Completed, Failed} }

// Final says that no transition leaves the state.
func (s State) Final() bool { return s == Completed || s == Failed }

// Message is what a client reads of a job in this state while nothing more is
// known. A failed job always has a reason of its own instead.
func (s State) Message() string {
	switch s {
	case Queued:
		return "Waiting for a worker."
	case Processing:
		return "Working on the image."
	case Completed:
		return "The image is ready."
	default:
		return ""
	}
}

// Transition is an event that moves a job.
type Transition string

// The transitions of an admitted job. Each one is a transaction of
// internal/postgres with the same name.
const (
	Claim    Transition = "claim"    // a worker takes the job; fence+1
	Progress Transition = "progress" // the worker is alive; lease extended
	Complete Transition = "complete"
	Fail     Transition = "fail"   // by the worker that holds the fence; refunds
	Cancel   Transition = "cancel" // never published, or never claimed; refunds
	Sweep    Transition = "sweep"  // no sign of life; refunds
)

// Transitions lists every transition.
func Transitions() []Transition {
	return []Transition{Claim, Progress, Complete, Fail, Cancel, Sweep}
}

// Next is the state after a transition, and whether the transition is legal
// from s. Guards that are no states (the fence, the lease, the age) are the
// database's: this table says what they can lead to.
func (s State) Next(t Transition) (State, bool) {
	switch {
	case t == Claim && !s.Final():
		return Processing, true
	case t == Progress && s == Processing:
		return Processing, true
	case t == Complete && s == Processing:
		return Completed, true
	case t == Fail && s == Processing, t == Cancel && s == Queued, t == Sweep && !s.Final():
		return Failed, true
	}
	return s, false
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
