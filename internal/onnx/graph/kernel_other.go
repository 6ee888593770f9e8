//go:build !amd64

package graph

// kernels lists what this processor can run, the fastest first.
func kernels() []kernel { return []kernel{portable()} }
