package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"pictor"
	"pictor/internal/job"
	"pictor/internal/vips"
)

// Demo runs the pictures of a folder through every task, on a dev stack of its
// own, the way a customer's program would: with the SDK, over HTTP.
type Demo struct {
	Pictures string `arg:"" help:"Folder of the pictures."`
	Output   string `default:"out" help:"Folder for results, and in it before-after/ for the sheets."`
	Temp     string `placeholder:"DIR" help:"Folder for the stack while it runs. Empty: the system's."`
}

// DemoRow is what one job made of one picture.
type DemoRow struct {
	Task    string  `json:"task"`
	Picture string  `json:"picture"`
	Size    string  `json:"size"`   // of the picture, upright
	Result  string  `json:"result"` // type and size
	Seconds float64 `json:"seconds"`
	Cost    float64 `json:"cost"`
	Balance float64 `json:"balance"` // after it was charged
	File    string  `json:"file"`
}

// Run starts the stack, runs every picture through every task, and stops it.
// each is called with every row as it is made.
func (d *Demo) Run(ctx context.Context, log *slog.Logger, each func(DemoRow)) error {
	pictures, err := d.pictures()
	if err != nil {
		return &UsageError{err}
	}
	sheets := filepath.Join(d.Output, "before-after")
	if err := os.MkdirAll(sheets, 0o755); err != nil {
		return fmt.Errorf("make the folder for results: %w", err)
	}
	return withStack(ctx, d.Temp, log, func(ctx context.Context, info DevInfo) error {
		client, err := pictor.New(info.BaseURL, info.APIKey)
		if err != nil {
			return err
		}
		var failed []error
		for _, picture := range pictures {
			for _, task := range job.Tasks() {
				row, err := d.one(ctx, client, task, picture, sheets)
				if err != nil {
					failed = append(failed, fmt.Errorf("%s of %s: %w", task, picture, err))
					continue
				}
				each(row)
			}
		}
		return errors.Join(failed...)
	})
}

func (d *Demo) pictures() ([]string, error) {
	entries, err := os.ReadDir(d.Pictures)
	if err != nil {
		return nil, err
	}
	var pictures []string
	for _, e := range entries {
		switch strings.ToLower(filepath.Ext(e.Name())) {
		case ".png", ".jpg", ".jpeg", ".webp":
			pictures = append(pictures, filepath.Join(d.Pictures, e.Name()))
		}
	}
	if len(pictures) == 0 {
		return nil, fmt.Errorf("%s holds no picture", d.Pictures)
	}
	return pictures, nil
}

func (d *Demo) one(ctx context.Context, client *pictor.Client, task job.Task, picture, sheets string) (DemoRow, error) {
	started := time.Now()
	created, err := create(ctx, client, task, pictor.File(picture), pictor.WithWait(5*time.Minute))
	if err != nil {
		return DemoRow{}, err
	}
	if err := created.Err(); err != nil {
		return DemoRow{}, err
	}
	if !created.Final() {
		return DemoRow{}, fmt.Errorf("job %s is %s after five minutes", created.ID, created.Status)
	}
	seconds := time.Since(started).Seconds()
	var result strings.Builder
	got, err := client.Download(ctx, created.ID, &result)
	if err != nil {
		return DemoRow{}, err
	}
	// Two pictures may differ in their extension only, so it stays in the name.
	name := strings.ReplaceAll(filepath.Base(picture), ".", "-") + "-" + string(task)
	file := filepath.Join(d.Output, name+job.Extension(got.Type))
	if err := os.WriteFile(file, []byte(result.String()), 0o644); err != nil {
		return DemoRow{}, fmt.Errorf("write the result: %w", err)
	}
	before, err := decodeFile(picture)
	if err != nil {
		return DemoRow{}, err
	}
	after, err := decodeFile(file)
	if err != nil {
		return DemoRow{}, err
	}
	if err := writeSheet(filepath.Join(sheets, name+".jpg"), before, after); err != nil {
		return DemoRow{}, err
	}
	return DemoRow{
		Task: string(task), Picture: filepath.Base(picture), Size: fmt.Sprintf("%dx%d", before.Width, before.Height),
		Result:  fmt.Sprintf("%s %dx%d", strings.TrimPrefix(got.Type, "image/"), after.Width, after.Height),
		Seconds: seconds, Cost: created.Cost, Balance: created.Billing.Balance, File: file,
	}, nil
}

func decodeFile(path string) (*vips.Picture, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	p, err := vips.Decode(b)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return p, nil
}

// withStack runs a dev stack on a temporary folder for as long as do takes.
func withStack(ctx context.Context, temp string, log *slog.Logger, do func(context.Context, DevInfo) error) error {
	dir, err := os.MkdirTemp(temp, "pictor-demo-")
	if err != nil {
		return fmt.Errorf("make a folder for the stack: %w", err)
	}
	defer os.RemoveAll(dir)
	c, err := devDefaults()
	if err != nil {
		return err
	}
	c.Data = dir
	stack, err := NewStack(ctx, c, log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- stack.Run(ctx, func() error { close(ready); return nil }) }()
	select {
	case <-ready:
	case err := <-ended:
		return err
	}
	err = do(ctx, stack.Info)
	cancel()
	return errors.Join(err, <-ended)
}
