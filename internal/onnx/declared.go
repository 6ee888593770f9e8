package onnx

import (
	"fmt"

	"pictor/internal/onnx/graph"
)

// declared finds the input and the chosen output of a model file, and refuses
// a model that cannot be used as opt says: what a worker would otherwise find
// out with every single picture.
func declared(file []byte, opt Options) (in, out graph.Value, err error) {
	inputs, outputs, err := graph.Declared(file)
	if err != nil {
		return in, out, err
	}
	if len(inputs) != 1 || len(outputs) == 0 {
		return in, out, fmt.Errorf("it has %d inputs and %d outputs: want one input and an output", len(inputs), len(outputs))
	}
	in, out = inputs[0], outputs[0]
	for _, v := range outputs {
		if v.Name == opt.Output {
			out = v
		}
	}
	switch {
	case opt.Output != "" && out.Name != opt.Output:
		return in, out, fmt.Errorf("it has no output %q", opt.Output)
	case in.Type != graph.Float32:
		return in, out, fmt.Errorf("its input %q does not take float32", in.Name)
	case out.Type != graph.Float32 && out.Type != graph.Float16:
		return in, out, fmt.Errorf("its output %q gives neither float32 nor float16", out.Name)
	case opt.Input != [4]int{} && !in.Accepts(opt.Input):
		return in, out, fmt.Errorf("its input %q has the shape %v: want %v, where 0 is a side of any length", in.Name, in.Shape, opt.Input)
	}
	return in, out, nil
}
