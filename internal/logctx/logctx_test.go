package logctx_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/logctx"
)

func TestHandler(t *testing.T) {
	t.Parallel()
	outer := logctx.With(t.Context(), slog.String("request", "r1"))
	inner := logctx.With(outer, slog.Int("account", 7), slog.String("request", "r2"))
	for name, c := range map[string]struct {
		ctx  context.Context
		log  func(context.Context, *slog.Logger)
		want string
	}{
		"adds nothing without attributes": {t.Context(), func(ctx context.Context, l *slog.Logger) { l.InfoContext(ctx, "m", "a", 1) }, "msg=m a=1\n"},
		"adds what the context carries":   {outer, func(ctx context.Context, l *slog.Logger) { l.InfoContext(ctx, "m", "a", 1) }, "msg=m a=1 request=r1\n"},
		"takes the latest":                {inner, func(ctx context.Context, l *slog.Logger) { l.InfoContext(ctx, "m") }, "msg=m request=r2 account=7\n"},
		"leaves what the line says":       {outer, func(ctx context.Context, l *slog.Logger) { l.InfoContext(ctx, "m", "request", "own") }, "msg=m request=own\n"},
		"leaves what the logger says":     {outer, func(ctx context.Context, l *slog.Logger) { l.With("request", "own").InfoContext(ctx, "m") }, "msg=m request=own\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			c.log(c.ctx, slog.New(logctx.NewHandler(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
					return slog.Attr{}
				}
				return a
			}}))))
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
	t.Run("tells the latest", func(t *testing.T) {
		t.Parallel()
		if diff := cmp.Diff([]string{"r2", "7", ""}, []string{logctx.Get(inner, "request"), logctx.Get(inner, "account"), logctx.Get(inner, "job")}); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("siblings do not share their attributes", func(t *testing.T) {
		t.Parallel()
		var out bytes.Buffer
		log := slog.New(logctx.NewHandler(slog.NewJSONHandler(&out, nil)))
		one, two := logctx.With(outer, slog.Int("n", 1)), logctx.With(outer, slog.Int("n", 2))
		log.InfoContext(one, "m")
		log.InfoContext(two, "m")
		if !bytes.Contains(out.Bytes(), []byte(`"n":1`)) || !bytes.Contains(out.Bytes(), []byte(`"n":2`)) {
			t.Errorf("logged %s", &out)
		}
	})
}
