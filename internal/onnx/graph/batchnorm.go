package graph

import (
	"errors"
	"math"
	"slices"
)

// scaleAndShift are a BatchNormalization's parameters as one multiplication
// and one addition per channel.
func scaleAndShift(in []tensor, epsilon float32) (scale, shift []float32, err error) {
	for _, t := range in {
		if t.isInt() || len(t.f) != len(in[0].f) || t.shape == nil {
			return nil, nil, errors.New("the parameters do not go together")
		}
	}
	gamma, beta, mean, variance := in[0].f, in[1].f, in[2].f, in[3].f
	for i := range gamma {
		s := float64(gamma[i]) / math.Sqrt(float64(variance[i])+float64(epsilon))
		scale = append(scale, float32(s))
		shift = append(shift, float32(float64(beta[i])-float64(mean[i])*s))
	}
	return scale, shift, nil
}

func (n *node) epsilon() (float32, error) {
	if n.int("training_mode", 0) != 0 || n.int("spatial", 1) != 1 {
		return 0, errors.New("training_mode and spatial=0 are not supported")
	}
	return n.float("epsilon", 1e-5), nil
}

func (n *node) batchNormalization() (operator, error) {
	epsilon, err := n.epsilon()
	if err != nil {
		return nil, err
	}
	return func(r *run, in []tensor) (tensor, error) {
		if len(in) != 5 {
			return tensor{}, errors.New("five inputs are needed")
		}
		x := in[0]
		scale, shift, err := scaleAndShift(in[1:], epsilon)
		if err != nil {
			return tensor{}, err
		}
		if len(x.shape) < 2 || x.isInt() || x.shape[1] != len(scale) {
			return tensor{}, errors.New("the parameters do not fit the input")
		}
		out, err := r.reuse(x, 0)
		if err != nil {
			return tensor{}, err
		}
		area := product(x.shape[2:])
		return out, r.parallel(x.shape[0]*x.shape[1], func(_, p int) {
			dst, a, b := out.f[p*area:][:area], scale[p%len(scale)], shift[p%len(scale)]
			for i, v := range x.f[p*area:][:area] {
				dst[i] = v*a + b
			}
		})
	}, nil
}

// absorbNormalization multiplies a BatchNormalization into the weights of the
// convolution before it; false if they do not go together.
func (n *node) absorbNormalization(next *node) bool {
	var parameters []tensor
	for i := 1; i < 5; i++ {
		t, ok := next.constant(i)
		if !ok {
			return false
		}
		parameters = append(parameters, t)
	}
	epsilon, err := next.epsilon()
	w, ok := n.constant(1)
	if err != nil || !ok || w.isInt() || product(w.shape) == 0 {
		return false
	}
	scale, shift, err := scaleAndShift(parameters, epsilon)
	if err != nil {
		return false
	}
	// Of a Conv the first axis is the output channel; of a ConvTranspose the
	// second, within the group that the first belongs to.
	outputs, groups := w.shape[0], n.int("group", 1)
	if n.op == "ConvTranspose" {
		if len(w.shape) < 3 || groups < 1 || w.shape[0]%groups != 0 {
			return false
		}
		outputs = w.shape[1] * groups
	}
	if len(scale) != outputs {
		return false
	}
	bias := make([]float32, outputs)
	if n.has(2) {
		t, ok := n.constant(2)
		if !ok || len(t.f) != outputs {
			return false
		}
		copy(bias, t.f)
	}
	for i := range bias {
		bias[i] = bias[i]*scale[i] + shift[i]
	}
	scaled := tensor{shape: w.shape, f: slices.Clone(w.f)}
	each := len(w.f) / w.shape[0]
	for i := range scaled.f {
		channel := i / each
		if n.op == "ConvTranspose" {
			channel = channel/(w.shape[0]/groups)*w.shape[1] + i%each/(each/w.shape[1])
		}
		scaled.f[i] *= scale[channel]
	}
	n.in = []int{n.in[0], n.compiler.add(scaled, true), n.compiler.add(tensor{shape: []int{outputs}, f: bias}, true)}
	return true
}
