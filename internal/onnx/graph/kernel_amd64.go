package graph

import "golang.org/x/sys/cpu"

// kernels lists what this processor can run, the fastest first.
func kernels() []kernel {
	var all []kernel
	if cpu.X86.HasAVX512F {
		all = append(all, kernel{name: "avx512", rows: 8, cols: 32, run: tileAVX512})
	}
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		all = append(all, kernel{name: "avx2", rows: 4, cols: 24, run: tileAVX2})
	}
	return append(all, portable())
}

//go:noescape
func tileAVX512(t *tile)

//go:noescape
func tileAVX2(t *tile)
