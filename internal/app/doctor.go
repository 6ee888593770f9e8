package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"pictor/internal/blob"
	"pictor/internal/bus"
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
	Hint   string `json:"hint,omitempty"` // what to do about it
}

// lookTimeout bounds one look of the doctor.
const lookTimeout = 30 * time.Second

// The hints of the looks, for when they fail.
const (
	databaseHint = "Is Postgres up, and is PICTOR_DATABASE_URL its address? Try it with psql."
	schemaHint   = "Run `pictor migrate up`."
	queueHint    = "Is NATS up with JetStream (nats-server -js), is PICTOR_NATS_URL its address, and may this user make streams there?"
	storeHint    = "Is PICTOR_BLOB_URL right, is there room, and may this user write there?"
	modelsHint   = "The binary is damaged: install it again."
	engineHint   = "Name ONNX Runtime's library by PICTOR_ORT_LIB, or set PICTOR_ENGINE=onnx-go, which needs none."
)

// Doctor looks at every part, and at the books. It goes on after a failure, so
// that one run shows all of them.
func Doctor(ctx context.Context, c DoctorConfig, stores Stores) []Finding {
	var found []Finding
	look := func(name, hint string, do func(context.Context) (string, error)) bool {
		ctx, cancel := context.WithTimeout(ctx, lookTimeout)
		defer cancel()
		detail, err := do(ctx)
		if err == nil {
			hint = ""
		} else {
			detail = err.Error()
		}
		found = append(found, Finding{name, err == nil, detail, hint})
		return err == nil
	}
	var database *postgres.DB
	look("database", databaseHint, func(ctx context.Context) (detail string, err error) {
		database, err = postgres.Open(ctx, stores.DatabaseURL, postgres.Config{Name: "pictor-doctor", MaxConns: 2})
		return "answers", err
	})
	if database != nil {
		defer database.Close()
		schema := look("schema", schemaHint, func(ctx context.Context) (string, error) {
			return "every migration is applied", database.Migrated(ctx)
		})
		if schema {
			found = append(found, books(ctx, database, c.StuckAfter)...)
		}
	}
	look("queue", queueHint, func(ctx context.Context) (string, error) { return lookAtQueue(ctx, stores) })
	look("store", storeHint, func(ctx context.Context) (string, error) { return lookAtStore(ctx, stores.BlobURL) })
	look("models", modelsHint, func(context.Context) (string, error) {
		return fmt.Sprintf("%d shipped models are intact", len(models.Shipped())), models.Verify()
	})
	look("engine", engineHint, func(context.Context) (string, error) { return lookAtEngine(ctx, c.Pictures) })
	return found
}

// books are the invariants of the money, one finding each.
func books(ctx context.Context, database *postgres.DB, stuckAfter time.Duration) []Finding {
	ctx, cancel := context.WithTimeout(ctx, 4*lookTimeout)
	defer cancel()
	invariants, err := database.Invariants(ctx, stuckAfter)
	if err != nil {
		return []Finding{{"books", false, err.Error(), databaseHint}}
	}
	found := make([]Finding, len(invariants))
	for i, v := range invariants {
		found[i] = Finding{Name: "books: " + v.Name, OK: v.Count == 0, Detail: "no row breaks it"}
		if v.Count != 0 {
			found[i].Detail, found[i].Hint = fmt.Sprintf("%d rows break it", v.Count), v.Hint
		}
	}
	return found
}

// lookAtQueue makes the queue where it is missing, as every process does: an
// empty NATS is all that a new installation has, or a restored one.
func lookAtQueue(ctx context.Context, stores Stores) (string, error) {
	queue, err := bus.Connect(stores.queue("pictor-doctor"), slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	defer queue.Close()
	if err := queue.Ensure(ctx); err != nil {
		return "", err
	}
	waiting, err := queue.Backlog(ctx)
	var n uint64
	for _, of := range waiting {
		n += of
	}
	return fmt.Sprintf("%d jobs wait", n), err
}

func lookAtStore(ctx context.Context, url string) (string, error) {
	store, err := blob.Open(ctx, url)
	if err != nil {
		return "", err
	}
	defer store.Close()
	return "an object was written, read and deleted", store.Check(ctx)
}

// lookAtEngine takes its time: a large foreign model works for many seconds.
func lookAtEngine(ctx context.Context, c Pictures) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*lookTimeout)
	defer cancel()
	engine, renderer, err := newRenderer(c, "", nil)
	if err != nil {
		return "", err
	}
	defer engine.Close()
	defer renderer.Close()
	return fmt.Sprintf("%s on %s renders a picture by %s", engine.Name(), engine.Provider(), c.inUse(c.tasks())), renderer.Check(ctx)
}
