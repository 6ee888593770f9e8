package vips

// #include <vips/vips.h>
import "C"

// Memory is what libvips itself has allocated in this process, in bytes: now,
// and at most so far.
func Memory() (now, most uint64) {
	return uint64(C.vips_tracked_get_mem()), uint64(C.vips_tracked_get_mem_highwater())
}
