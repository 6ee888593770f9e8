package graph

import "context"

// Tensor is a tensor for tests: floats or integers, of any rank.
type Tensor struct {
	Shape  []int
	Floats []float32
	Ints   []int64
}

// Kernels are the names of the kernels that this processor can run.
func Kernels() []string {
	var names []string
	for _, k := range kernels() {
		names = append(names, k.name)
	}
	return names
}

// LoadWith loads a model for a kernel that need not be the fastest.
func LoadWith(name string, model []byte, opt Options) (*Model, error) {
	for _, k := range kernels() {
		if k.name == name {
			return load(model, opt, k)
		}
	}
	panic("no kernel " + name)
}

// RunAll runs a model with any number of inputs of any rank.
func (m *Model) RunAll(ctx context.Context, inputs ...Tensor) (Tensor, error) {
	var in []tensor
	for _, t := range inputs {
		in = append(in, tensor{shape: append([]int{}, t.Shape...), f: t.Floats, i: t.Ints})
	}
	out, err := m.run(ctx, in, nil)
	return Tensor{out.shape, out.f, out.i}, err
}

// Steps are the labels of the plan's steps.
func (m *Model) Steps() []string {
	var labels []string
	for _, s := range m.plan.steps {
		labels = append(labels, s.label)
	}
	return labels
}

// ParseTensor reads a tensor file as the ONNX project's test vectors have it.
func ParseTensor(b []byte) (Tensor, error) {
	b, err := repairTensor("", b)
	if err != nil || b == nil {
		return Tensor{}, err
	}
	t, err := decodeTensor(b)
	return Tensor{t.shape, t.f, t.i}, err
}

// Outputs are the names of a model's outputs.
func Outputs(model []byte) []string {
	r, err := repair(model)
	if err != nil {
		panic(err)
	}
	return r.outputs
}
