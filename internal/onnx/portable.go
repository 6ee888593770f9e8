package onnx

import "errors"

// openGo starts the portable engine, internal/onnx/graph. That package imports
// nothing of this one, which wires it.
func openGo() (Engine, error) {
	return nil, errors.New("this build has no pure-Go engine: `go tool task setup` installs ONNX Runtime")
}
