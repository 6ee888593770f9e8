// Package gorgonnx compares the pure-Go engine with the backend that onnx-go
// comes with, which is built on Gorgonia. It is a module of its own, so that
// Gorgonia is not in Pictor's. `go tool task bench` runs it.
package gorgonnx
