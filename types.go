package pictor

import (
	"net/http"
	"time"

	api "pictor/gen"
)

// Status is where a job stands.
type Status string

// The statuses. Completed and Failed are final.
const (
	Queued     Status = "queued"
	Processing Status = "processing"
	Completed  Status = "completed"
	Failed     Status = "failed"
)

// Job is one charged piece of work on one image.
type Job struct {
	ID       string
	Task     string // "remove-bg", "upscale-2x" or "upscale-4x"
	Status   Status
	Progress int     // 0 to 100
	Message  string  // a sentence for people
	Cost     float64 // Point; it stays after a refund
	Refunded bool    // a failed job is

	// Of a completed job only. ResultURL is public and temporary; DownloadURL
	// needs the key and is what Download reads.
	ResultURL, DownloadURL string

	CreatedAt, UpdatedAt time.Time // to the second

	// Of a job that this client created only. Replayed says that an earlier
	// request with the same Idempotency-Key had created it already.
	Billing  *Billing
	Replayed bool
}

// Billing is what creating a job cost, in Point.
type Billing struct {
	Cost    float64
	Balance float64 // of the account, right after the charge
}

// Final says that the job will not change any more.
func (j *Job) Final() bool { return j.Status == Completed || j.Status == Failed }

// Err is nil unless the job has failed; then it is ErrJobFailed with the job's
// own message. A failed job is refunded.
func (j *Job) Err() error {
	if j.Status != Failed {
		return nil
	}
	return &Error{Code: ErrJobFailed.Code, Status: http.StatusConflict, Message: j.Message}
}

// Account is who a key belongs to, with balance and prices in Point.
type Account struct {
	Name       string
	VIP        bool
	Balance    float64
	Prices     map[string]float64 // by task
	Lowest     float64            // the lowest of the prices
	Affordable int                // how many images the balance pays for at that price
}

// Tasks is what the server offers, and its limits.
type Tasks struct {
	Tasks  []Task
	Limits Limits
}

// Task is one kind of work.
type Task struct {
	ID            string
	Name          string
	Scale         int // of an upscale task, otherwise 0
	Cost          float64
	InputFormats  []string
	OutputFormats []string
	MaxSide       int // longest side accepted, in pixels; 0 where there is no limit
}

// Limits hold for every image and account.
type Limits struct {
	MaxImageBytes  int64
	MaxImagePixels int64
	MaxRunningJobs int
	MaxKeys        int
	MaxWait        time.Duration // of one request; WithWait and Wait go beyond it
	URLTimeout     time.Duration // for the download of an image by URL
	ResultTTL      time.Duration // how long a result is kept
}

func newJob(j *api.Job) *Job {
	out := &Job{
		ID: j.ID.String(), Task: string(j.Task), Status: Status(j.Status), Progress: j.Progress, Message: j.Message,
		Cost: j.Cost, Refunded: j.Refunded,
		CreatedAt: when(j.CreatedAt), UpdatedAt: when(j.UpdatedAt),
	}
	if !j.ResultURL.Null {
		out.ResultURL = j.ResultURL.Value.String()
	}
	if !j.DownloadURL.Null {
		out.DownloadURL = j.DownloadURL.Value.String()
	}
	return out
}

func newCreatedJob(answer *api.JobWithBillingStatusCodeWithHeaders) *Job {
	j := answer.Response
	out := newJob(&api.Job{
		ID: j.ID, Task: j.Task, Status: j.Status, Progress: j.Progress, Message: j.Message,
		ResultURL: j.ResultURL, DownloadURL: j.DownloadURL, Cost: j.Cost, Refunded: j.Refunded,
		CreatedAt: j.CreatedAt, UpdatedAt: j.UpdatedAt,
	})
	out.Billing = &Billing{Cost: j.Billing.Cost, Balance: j.Billing.Balance}
	out.Replayed = answer.IdempotentReplayed.Value
	return out
}

// when reads the API's times, which are those of Ho Chi Minh City: UTC+7 all
// year round.
func when(s api.NilString) time.Time {
	t, err := time.ParseInLocation(time.DateTime, s.Value, time.FixedZone("Asia/Ho_Chi_Minh", 7*60*60))
	if err != nil {
		return time.Time{}
	}
	return t
}

func newAccount(a *api.Account) *Account {
	return &Account{Name: a.Uname, VIP: a.IsVip, Balance: a.Balance, Prices: a.CostPerTask, Lowest: a.CostPerImage, Affordable: a.ImagesAffordable}
}

func newTasks(t *api.Tasks) *Tasks {
	out := &Tasks{Limits: Limits{
		MaxImageBytes:  t.Limits.MaxImageBytes,
		MaxImagePixels: t.Limits.MaxImagePixels,
		MaxRunningJobs: t.Limits.MaxRunningJobs,
		MaxKeys:        t.Limits.MaxAPIKeys,
		MaxWait:        time.Duration(t.Limits.MaxWaitSeconds) * time.Second,
		URLTimeout:     time.Duration(t.Limits.ImageURLTimeoutSeconds) * time.Second,
		ResultTTL:      time.Duration(t.Limits.ResultTTLSeconds) * time.Second,
	}}
	for _, info := range t.Tasks {
		out.Tasks = append(out.Tasks, Task{
			ID: string(info.ID), Name: info.Name, Scale: info.Scale.Value, Cost: info.Cost,
			InputFormats: info.InputFormats, OutputFormats: info.OutputFormats, MaxSide: info.MaxSidePx.Value,
		})
	}
	return out
}
