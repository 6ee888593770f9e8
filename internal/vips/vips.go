// Package vips turns bytes into pixels and pixels into bytes. It is the only
// package that knows libvips.
//
// Pixels are 8-bit sRGB, upright, interleaved, with straight alpha: what a
// file's orientation, colour profile, depth or palette says is applied once,
// while decoding. Every pipeline is one C call, so libvips never holds a Go
// slice after the call that lent it. bimg starts libvips and recognises types;
// it never resizes or rotates, because bimg 1.1.9 hands libvips a slice that Go
// may already have freed.
package vips

/*
#cgo pkg-config: vips libwebp libjpeg
#cgo CFLAGS: -Wall
#cgo LDFLAGS: -lm
#include "pixels.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"strings"
	"sync"
)

// Config is how libvips runs in this process.
type Config struct {
	// Threads inside one libvips pipeline. 0 is 1: pictures run side by side,
	// and more threads on one of them cost the same CPU time.
	Threads int

	// Arenas bounds the memory pools of glibc's malloc, each of which keeps
	// what the largest picture on it needed. 0 is 2. Other C libraries ignore it.
	Arenas int
}

var (
	startOnce sync.Once
	startErr  error
)

// Start sets libvips up: loaders for JPEG, PNG and WebP alone, no cache, no
// warnings on stderr, bounded malloc arenas. The first call counts; every
// function of the package makes it with a zero Config when nobody has.
func Start(c Config) error {
	startOnce.Do(func() {
		if c.Threads == 0 {
			c.Threads = 1
		}
		if c.Arenas == 0 {
			c.Arenas = 2
		}
		if C.pictor_start(C.int(c.Threads), C.int(c.Arenas)) != 0 {
			startErr = fmt.Errorf("start libvips: %w", lastError())
		}
	})
	return startErr
}

// Error says that the picture is to blame.
type Error struct {
	Message string // a sentence for the client
	cause   error  // what the library said, for the log
}

func (e *Error) Error() string {
	if e.cause != nil {
		return e.Message + " (" + e.cause.Error() + ")"
	}
	return e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// lastError takes libvips's messages and clears them. The buffer belongs to the
// whole process: under load it can hold another picture's messages, or none, so
// it is fit for a log and for nothing else.
func lastError() error {
	text := C.vips_error_buffer_copy()
	defer C.g_free(C.gpointer(text))
	message := strings.Join(strings.Fields(C.GoString(text)), " ")
	if message == "" {
		return errors.New("libvips gave no reason")
	}
	return errors.New(message)
}
