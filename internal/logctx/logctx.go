// Package logctx puts what is known of the request or job at hand on every line
// that is logged about it: the context carries the attributes, and the handler
// adds them.
package logctx

import (
	"context"
	"log/slog"
	"slices"
)

type key struct{}

// With returns a context whose log lines carry the attributes too.
func With(ctx context.Context, attrs ...slog.Attr) context.Context {
	return context.WithValue(ctx, key{}, append(slices.Clip(of(ctx)), attrs...))
}

// Get is the value that a context's log lines carry under a key, "" for none.
func Get(ctx context.Context, key string) string {
	for _, a := range slices.Backward(of(ctx)) {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

func of(ctx context.Context) []slog.Attr {
	attrs, _ := ctx.Value(key{}).([]slog.Attr)
	return attrs
}

// Handler adds the attributes of the context to the lines of another handler.
// One that the line, or its logger, has already is not added.
type Handler struct {
	next slog.Handler
	has  []string // keys of the logger's attributes
}

// NewHandler wraps a handler.
func NewHandler(next slog.Handler) *Handler { return &Handler{next: next} }

// Enabled is slog.Handler.
func (h *Handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle is slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	attrs := of(ctx)
	if len(attrs) == 0 {
		return h.next.Handle(ctx, r)
	}
	has := slices.Clip(h.has)
	r.Attrs(func(a slog.Attr) bool {
		has = append(has, a.Key)
		return true
	})
	r = r.Clone()
	// The latest of several with one key counts.
	for _, a := range slices.Backward(attrs) {
		if !slices.Contains(has, a.Key) {
			r.AddAttrs(a)
			has = append(has, a.Key)
		}
	}
	return h.next.Handle(ctx, r)
}

// WithAttrs is slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	has := slices.Clip(h.has)
	for _, a := range attrs {
		has = append(has, a.Key)
	}
	return &Handler{h.next.WithAttrs(attrs), has}
}

// WithGroup is slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler { return &Handler{h.next.WithGroup(name), h.has} }
