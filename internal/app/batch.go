package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"pictor"
	"pictor/internal/job"
)

// Batch is a number of pictures to send through one task.
type Batch struct {
	Caller
	Files    []string `arg:"" name:"files" help:"Pictures: JPEG, PNG or WebP."`
	Output   string   `short:"o" placeholder:"PATH" help:"Where to write: a folder, or a file when there is one picture. Default: beside each picture."`
	Force    bool     `help:"Also work on pictures that are finished already. They are charged again."`
	Parallel int      `default:"2" help:"Pictures at a time, at most 5."`
}

// Outcome is what became of one picture.
type Outcome struct {
	File    string      `json:"file"`
	Output  string      `json:"output"`
	Skipped bool        `json:"skipped"` // it was finished before
	Error   string      `json:"error,omitempty"`
	Job     *BatchJob   `json:"job"`
	Seconds float64     `json:"seconds"`
	job     *pictor.Job // as the SDK has it
}

// BatchJob has the fields of the API's Job.
type BatchJob struct {
	ID          string  `json:"id"`
	Task        string  `json:"task"`
	Status      string  `json:"status"`
	Progress    int     `json:"progress"`
	Message     string  `json:"message"`
	ResultURL   *string `json:"result_url"`
	DownloadURL *string `json:"download_url"`
	Cost        float64 `json:"cost"`
	Refunded    bool    `json:"refunded"`
	CreatedAt   string  `json:"created_at"`
	UpdatedAt   string  `json:"updated_at"`
}

// Progress tells how far the picture number of a batch is.
type Progress func(number, percent int, done *Outcome)

// Run sends the pictures, a few at a time, and writes the results. One that
// fails does not keep the others from theirs.
//
// A run that was interrupted may be repeated: what is written is skipped, and
// what was charged is not charged again, because the Idempotency-Key of a
// picture is made of its bytes and the task.
func (b *Batch) Run(ctx context.Context, task job.Task, progress Progress) ([]Outcome, error) {
	if err := errors.Join(b.resolve(), b.mistakes(task)); err != nil {
		return nil, &UsageError{err}
	}
	client, err := pictor.New(b.BaseURL, b.APIKey, pictor.WithUserAgent("pictor-cli"))
	if err != nil {
		return nil, &UsageError{err}
	}
	outcomes := make([]Outcome, len(b.Files))
	slots := make(chan struct{}, b.Parallel)
	var wg sync.WaitGroup
	for i, file := range b.Files {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			started := time.Now()
			outcomes[i] = b.one(ctx, client, task, file, func(percent int) { progress(i, percent, nil) })
			outcomes[i].Seconds = time.Since(started).Seconds()
			progress(i, 100, &outcomes[i])
		})
	}
	wg.Wait()
	for _, o := range outcomes {
		if o.Error != "" {
			err = errors.New("not every picture was finished")
		}
	}
	return outcomes, err
}

func (b *Batch) mistakes(task job.Task) error {
	if b.Parallel < 1 || b.Parallel > job.MaxRunning {
		return fmt.Errorf("--parallel is %d: want 1 to %d", b.Parallel, job.MaxRunning)
	}
	from := make(map[string]string)
	for _, file := range b.Files {
		stem := b.stem(task, file)
		if other, ok := from[stem]; ok {
			return fmt.Errorf("%s and %s would be written to the same file: give them in two runs, with a different -o", other, file)
		}
		from[stem] = file
	}
	return nil
}

// stem is the path of a result without its extension, which only the result
// tells.
func (b *Batch) stem(task job.Task, file string) string {
	name := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)) + "-" + string(task)
	switch {
	case b.Output == "":
		return filepath.Join(filepath.Dir(file), name)
	case b.intoFile():
		return strings.TrimSuffix(b.Output, filepath.Ext(b.Output))
	default:
		return filepath.Join(b.Output, name)
	}
}

// intoFile says that -o names a file: one picture, and a name with the
// extension of an image.
func (b *Batch) intoFile() bool {
	switch strings.ToLower(filepath.Ext(b.Output)) {
	case ".png", ".jpg", ".jpeg", ".webp":
		return len(b.Files) == 1
	}
	return false
}

// path is where a result of a type is written.
func (b *Batch) path(task job.Task, file, imageType string) string {
	if b.intoFile() {
		return b.Output
	}
	return b.stem(task, file) + job.Extension(imageType)
}

// finished is the result of an earlier run.
func (b *Batch) finished(task job.Task, file string) (string, bool) {
	for _, imageType := range []string{job.PNG, job.JPEG, job.WebP} {
		path := b.path(task, file, imageType)
		if info, err := os.Stat(path); err == nil && info.Size() > 0 {
			return path, true
		}
	}
	return "", false
}

func (b *Batch) one(ctx context.Context, client *pictor.Client, task job.Task, file string, progress func(int)) Outcome {
	o := Outcome{File: file}
	if !b.Force {
		if o.Output, o.Skipped = b.finished(task, file); o.Skipped {
			return o
		}
	}
	key, err := b.key(task, file)
	if err == nil {
		o.job, o.Output, err = b.send(ctx, client, task, file, key, progress)
		if err != nil && o.job != nil && o.job.Replayed {
			// The earlier job failed, or its result is gone: this is a new try.
			o.job, o.Output, err = b.send(ctx, client, task, file, uuid.NewString(), progress)
		}
	}
	if err != nil {
		o.Error = err.Error()
	}
	o.Job = newBatchJob(o.job)
	return o
}

func (b *Batch) key(task job.Task, file string) (string, error) {
	if b.Force {
		return uuid.NewString(), nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte(task+"\n"), content...))
	return "cli-" + hex.EncodeToString(sum[:]), nil
}

// send runs one job from its creation to the written result.
func (b *Batch) send(ctx context.Context, client *pictor.Client, task job.Task, file, key string, progress func(int)) (*pictor.Job, string, error) {
	created, err := create(ctx, client, task, pictor.File(file), pictor.WithIdempotencyKey(key))
	if err != nil {
		return nil, "", err
	}
	ended, err := client.Wait(ctx, created.ID, func(j *pictor.Job) { progress(j.Progress) })
	if err != nil {
		return created, "", err
	}
	ended.Billing, ended.Replayed = created.Billing, created.Replayed
	if err := ended.Err(); err != nil {
		return ended, "", err
	}
	path, err := b.download(ctx, client, task, file, ended.ID)
	return ended, path, err
}

func create(ctx context.Context, client *pictor.Client, task job.Task, image pictor.Image, options ...pictor.CreateOption) (*pictor.Job, error) {
	if scale := task.Scale(); scale != 0 {
		return client.Upscale(ctx, image, scale, options...)
	}
	return client.RemoveBackground(ctx, image, options...)
}

// download writes the result beside its final place first: a result is there
// whole or not at all.
func (b *Batch) download(ctx context.Context, client *pictor.Client, task job.Task, file, id string) (string, error) {
	part := b.stem(task, file) + ".part"
	if err := os.MkdirAll(filepath.Dir(part), 0o755); err != nil {
		return "", err
	}
	f, err := os.Create(part)
	if err != nil {
		return "", err
	}
	defer os.Remove(part)
	result, err := client.Download(ctx, id, f)
	if err := errors.Join(err, f.Close()); err != nil {
		return "", err
	}
	path := b.path(task, file, result.Type)
	return path, os.Rename(part, path)
}

func newBatchJob(j *pictor.Job) *BatchJob {
	if j == nil {
		return nil
	}
	out := &BatchJob{
		ID: j.ID, Task: j.Task, Status: string(j.Status), Progress: j.Progress, Message: j.Message, Cost: j.Cost, Refunded: j.Refunded,
		CreatedAt: j.CreatedAt.Format(time.DateTime), UpdatedAt: j.UpdatedAt.Format(time.DateTime),
	}
	if j.ResultURL != "" {
		out.ResultURL, out.DownloadURL = &j.ResultURL, &j.DownloadURL
	}
	return out
}
