package vips

// #include "pixels.h"
import "C"

import (
	"context"
	"runtime/cgo"
	"sync"
)

// watcher follows a decoder or an encoder, in a thread that may be libvips's
// own, and stops it when ctx is done.
type watcher struct {
	ctx      context.Context
	progress func(percent int)

	mu   sync.Mutex
	last int
}

//export pictorWatched
func pictorWatched(handle C.uintptr_t, percent C.int) C.int {
	w := cgo.Handle(handle).Value().(*watcher)
	if w.ctx.Err() != nil {
		return 1
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := int(percent); p > w.last && w.progress != nil {
		w.last = p
		w.progress(p)
	}
	return 0
}

// watched runs work with a watcher. progress, which may be nil, is called with
// growing percentages.
func watched(ctx context.Context, progress func(percent int), work func(C.uintptr_t) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	h := cgo.NewHandle(&watcher{ctx: ctx, progress: progress})
	defer h.Delete()
	err := work(C.uintptr_t(h))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
