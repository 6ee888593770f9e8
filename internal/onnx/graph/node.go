package graph

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// node is an operation on its way to a step.
type node struct {
	op, label  string
	attributes map[string]any
	in, out    []int
	compiler   *compiler
	err        error // the first attribute of a wrong type

	part, parts int       // of a Split: which output of how many
	slope       []float32 // fused activation: one for all channels, or one each; nil is none
}

// constant is the constant value of an input.
func (n *node) constant(i int) (tensor, bool) {
	if !n.has(i) || !n.compiler.isConst[n.in[i]] {
		return tensor{}, false
	}
	return n.compiler.constants[n.in[i]], true
}

// has tells whether an optional input is there.
func (n *node) has(i int) bool { return i < len(n.in) && n.in[i] >= 0 }

// compile makes the step.
func (n *node) compile() (step, error) {
	run, err := n.operator()
	if errors.Is(err, errUnsupported) {
		return step{}, fmt.Errorf("operator %s is not supported", n.label)
	}
	if !n.has(0) {
		return step{}, fmt.Errorf("%s: the first input is absent", n.label)
	}
	if err == nil {
		err = n.err
	}
	if err != nil {
		return step{}, fmt.Errorf("%s: %w", n.label, err)
	}
	return step{label: n.label, run: run, in: slices.Clone(n.in), out: n.out[0]}, nil
}

var errUnsupported = errors.New("unsupported operator")

// attributeOf finds an attribute; false if it is absent or of a wrong type, which
// is noted.
func attributeOf[T any](n *node, name string) (T, bool) {
	a, ok := n.attributes[name]
	if !ok {
		var none T
		return none, false
	}
	v, ok := a.(T)
	if !ok && n.err == nil {
		n.err = fmt.Errorf("attribute %s is of the type %T", name, a)
	}
	return v, ok
}

// maxAttribute bounds sides, pads and the like, so that sums and products of
// few of them cannot overflow.
const maxAttribute = 1 << 20

func (n *node) int(name string, otherwise int) int {
	v, ok := attributeOf[int64](n, name)
	if !ok {
		return otherwise
	}
	if v > maxAttribute || v < -maxAttribute {
		n.err = fmt.Errorf("attribute %s is %d", name, v)
		return otherwise
	}
	return int(v)
}

func (n *node) float(name string, otherwise float32) float32 {
	if v, ok := attributeOf[float32](n, name); ok {
		return v
	}
	return otherwise
}

func (n *node) string(name, otherwise string) string {
	if v, ok := attributeOf[string](n, name); ok {
		return v
	}
	return otherwise
}

// ints are the numbers of an attribute, saturated: a slice's end may be the
// largest int64, "to the end".
func (n *node) ints(name string) []int {
	v, _ := attributeOf[[]int64](n, name)
	var all []int
	for _, x := range v {
		all = append(all, int(max(min(x, math.MaxInt32), math.MinInt32)))
	}
	return all
}

// sizes are the numbers of an attribute that counts something: exactly count of
// them, each at least least; nil if it is absent.
func (n *node) sizes(name string, count, least int) []int {
	all := n.ints(name)
	if all == nil {
		return nil
	}
	if len(all) != count || slices.Min(all) < least || slices.Max(all) > maxAttribute {
		if n.err == nil {
			n.err = fmt.Errorf("attribute %s is %v", name, all)
		}
		return nil
	}
	return all
}
