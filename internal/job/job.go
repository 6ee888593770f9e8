// Package job holds the words of the flow: what can be asked for, what a job
// is, which states it passes through and the limits that every stage enforces.
//
//	           Admit
//	             |
//	          queued ----Cancel----> failed   (never published: refunded)
//	             |  \----Fail------> failed   (swept: refunded)
//	           Claim
//	             |
//	    +--- processing --Fail-----> failed   (refunded)
//	    |        |
//	  Claim   Complete
//	(lease       |
//	 expired) completed
//
// The database enforces the same arrows in the WHERE clauses of
// internal/postgres; a test holds the two against each other.
package job

import (
	"time"

	"pictor/internal/point"
)

// ID identifies a job: a UUID in its canonical lower-case form.
type ID string

// Limits. The contract publishes them in GET /tasks; the code enforces the
// same constants.
const (
	MaxImageBytes  = 20 << 20         // bytes of one image, whatever envelope it comes in
	MaxImagePixels = 100_000_000      // width x height of one image
	MaxRunning     = 5                // queued or processing jobs per account
	MaxKeys        = 5                // keys per account
	MaxWait        = 60 * time.Second // largest `wait`
	URLTimeout     = 15 * time.Second // download of an image_url, from the first byte of DNS to the last of the body
	KeyLifetime    = 24 * time.Hour   // how long an Idempotency-Key returns the first job
	MaxClaims      = 3                // a job whose claims came to nothing this often is given up and refunded
)

// Task is one kind of work on one image.
type Task string

// The tasks.
const (
	RemoveBG  Task = "remove-bg"
	Upscale2x Task = "upscale-2x"
	Upscale4x Task = "upscale-4x"
)

// Tasks lists every task, in the order of the contract.
func Tasks() []Task { return []Task{RemoveBG, Upscale2x, Upscale4x} }

// Image types that are read and written.
const (
	PNG  = "image/png"
	JPEG = "image/jpeg"
	WebP = "image/webp"
)

// Extension is the file name extension of an image type, with its dot.
func Extension(imageType string) string {
	switch imageType {
	case JPEG:
		return ".jpg"
	case WebP:
		return ".webp"
	default:
		return ".png"
	}
}

// Cost is the price of one image.
func (t Task) Cost() point.Amount {
	if t == Upscale4x {
		return 150
	}
	return 100
}

// LowestCost is the price of the cheapest task.
func LowestCost() point.Amount {
	lowest := RemoveBG.Cost()
	for _, t := range Tasks() {
		lowest = min(lowest, t.Cost())
	}
	return lowest
}

// Scale is the enlargement factor of an upscale task, 0 for the others.
func (t Task) Scale() int {
	switch t {
	case Upscale2x:
		return 2
	case Upscale4x:
		return 4
	default:
		return 0
	}
}

// Upscale is the upscale task of a factor; false for a factor that has none.
func Upscale(scale int) (Task, bool) {
	for _, t := range Tasks() {
		if scale != 0 && t.Scale() == scale {
			return t, true
		}
	}
	return "", false
}

// MaxSide is the longest side in pixels that the task accepts, 0 for no limit
// beyond MaxImagePixels.
func (t Task) MaxSide() int {
	if t == Upscale4x {
		return 4096
	}
	return 0
}

// Image is what is known of an input once it was checked.
type Image struct {
	Type          string // PNG, JPEG or WebP, read from the bytes
	Size          int64  // bytes
	Width, Height int    // pixels, upright
}

// Job is one charged piece of work.
type Job struct {
	ID       ID
	Account  int64
	Task     Task
	State    State
	Progress int    // 0 to 100, never falls
	Message  string // a sentence for people
	Cost     point.Amount
	Refunded bool
	Input    Image

	// Fence counts the claims. Every write of a worker names the fence it
	// claimed under; a write under an older one changes nothing.
	Fence int64
	// Lapses counts the claims that came to nothing: their lease ran out, or
	// their worker met an error that is not the picture's. Jobs that a worker
	// gave back because it stopped are not among them.
	Lapses int

	// Of a completed job only.
	ResultToken string // unguessable name on the public result host
	ResultType  string
	ResultSize  int64

	CreatedAt, UpdatedAt time.Time
	FinishedAt           time.Time // zero while not final

	Trace string // traceparent of the request, for whoever works on it; "" when nobody traces
}

// InputKey names the input in the store.
func (id ID) InputKey() string { return "in/" + string(id) }

// ResultKey names the result that the claim with this fence wrote. Two workers
// that hold the same job never write the same object.
func (id ID) ResultKey(fence int64) string { return "out/" + string(id) + "/" + itoa(fence) }

// ResultKey names the job's published result.
func (j Job) ResultKey() string { return j.ID.ResultKey(j.Fence) }
