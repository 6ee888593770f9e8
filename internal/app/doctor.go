package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pictor/internal/blob"
	"pictor/internal/bus"
	"pictor/internal/job"
	"pictor/internal/models"
	"pictor/internal/postgres"
)

// DoctorConfig is what the doctor looks at besides the connection.
type DoctorConfig struct {
	Times
	Pictures
}

// Mistakes names every mistake, not only the first.
func (c DoctorConfig) Mistakes() error {
	return errors.Join(c.Times.Mistakes(), c.Pictures.Mistakes())
}

// Finding is what one look found.
type Finding struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
}

// lookTimeout bounds one look of the doctor.
const lookTimeout = 30 * time.Second

// Doctor looks at every part, and at the books. It goes on after a failure, so
// that one run shows all of them.
func Doctor(ctx context.Context, c DoctorConfig, stores Stores) []Finding {
	var found []Finding
	look := func(name string, do func(context.Context) (string, error)) bool {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		detail, err := do(ctx)
		if err != nil {
			detail = err.Error()
		}
		found = append(found, Finding{name, err == nil, detail})
		return err == nil
	}
	var database *postgres.DB
	look("database", func(ctx context.Context) (detail string, err error) {
		database, err = postgres.Open(ctx, stores.DatabaseURL, postgres.Config{Name: "pictor-doctor", MaxConns: 2})
		return "answers", err
	})
	if database != nil {
		defer database.Close()
		schema := look("schema", func(ctx context.Context) (string, error) {
			return "every migration is applied", checkSchema(ctx, stores.DatabaseURL)
		})
		if schema {
			found = append(found, books(ctx, database, c.StuckAfter)...)
		}
	}
	look("queue", func(ctx context.Context) (string, error) { return lookAtQueue(ctx, stores.NATSURL) })
	look("store", func(ctx context.Context) (string, error) {
		store, err := blob.Open(ctx, stores.BlobURL)
		if err != nil {
			return "", err
		}
		defer store.Close()
		return "an object was written, read and deleted", store.Check(ctx)
	})
	look("models", func(context.Context) (string, error) {
		return fmt.Sprintf("%d shipped models are intact", len(models.Shipped())), models.Verify()
	})
	look("engine", func(context.Context) (string, error) {
		engine, renderer, err := newRenderer(c.Pictures, "")
		if err != nil {
			return "", err
		}
		defer engine.Close()
		defer renderer.Close()
		return fmt.Sprintf("%s on %s loads the models of %d tasks", engine.Name(), engine.Provider(), len(job.Tasks())), nil
	})
	return found
}

// books are the invariants of the money, one finding each.
func books(ctx context.Context, database *postgres.DB, stuckAfter time.Duration) []Finding {
	ctx, cancel := context.WithTimeout(ctx, 4*lookTimeout)
	defer cancel()
	invariants, err := database.Invariants(ctx, stuckAfter)
	if err != nil {
		return []Finding{{"books", false, err.Error()}}
	}
	found := make([]Finding, len(invariants))
	for i, v := range invariants {
		found[i] = Finding{"books: " + v.Name, v.Count == 0, v.Hint}
		if v.Count != 0 {
			found[i].Detail = fmt.Sprintf("%d rows break it. %s", v.Count, v.Hint)
		}
	}
	return found
}

func lookAtQueue(ctx context.Context, url string) (string, error) {
	queue, err := bus.Connect(bus.Config{URL: url, Name: "pictor-doctor"}, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	defer queue.Close()
	waiting, err := queue.Backlog(ctx)
	var n uint64
	for _, of := range waiting {
		n += of
	}
	return fmt.Sprintf("%d jobs wait", n), err
}
