package graph

import (
	"fmt"

	onnx "github.com/owulveryck/onnx-go"
	gonum "gonum.org/v1/gonum/graph"
	"gonum.org/v1/gonum/graph/simple"
	gorgonia "gorgonia.org/tensor"
)

// dense is how onnx-go hands over tensors.
type dense = gorgonia.Tensor

// network is the onnx-go Backend: onnx-go fills it with values, edges and
// operations, in the order of the file.
type network struct {
	*simple.WeightedDirectedGraph
	operations []operation
}

// value is a node of onnx-go's graph.
type value struct {
	gonum.Node
	name     string
	operands []*value // inputs of the operation that computes it
	data     dense
}

type operation struct {
	onnx.Operation
	in, out []*value
}

var (
	_ onnx.Backend     = (*network)(nil)
	_ onnx.Namer       = (*value)(nil)
	_ onnx.DataCarrier = (*value)(nil)
)

func (v *value) SetName(name string) { v.name = name }
func (v *value) GetName() string     { return v.name }

func (v *value) SetTensor(t dense) error { v.data = t; return nil }
func (v *value) GetTensor() dense        { return v.data }

// NewNode makes a value.
func (n *network) NewNode() gonum.Node {
	return &value{Node: n.WeightedDirectedGraph.NewNode()}
}

// SetWeightedEdge notes an operand: edges go from a result to its operands,
// the weight is the position. The graph itself would keep only one of the two
// edges of Add(x, x), and panic at a value computed from itself, so the
// operands are kept in the value.
func (n *network) SetWeightedEdge(e gonum.WeightedEdge) {
	from, to := e.From().(*value), e.To().(*value)
	if position := int(e.Weight()); position == len(from.operands) {
		from.operands = append(from.operands, to)
	}
	if from != to {
		n.WeightedDirectedGraph.SetWeightedEdge(e)
	}
}

// ApplyOperation notes an operation; its edges are already there.
func (n *network) ApplyOperation(o onnx.Operation, results ...gonum.Node) error {
	op := operation{Operation: o}
	for _, r := range results {
		v := r.(*value)
		op.out = append(op.out, v)
		if v.name != "" {
			op.in = v.operands
		}
	}
	n.operations = append(n.operations, op)
	return nil
}

// decode has onnx-go read a repaired model file.
func decode(r *repaired) (*network, error) {
	n := &network{WeightedDirectedGraph: simple.NewWeightedDirectedGraph(0, -1)}
	if err := onnx.NewModel(n).UnmarshalBinary(r.bytes); err != nil {
		return nil, fmt.Errorf("onnx-go: %w", err)
	}
	return n, nil
}

// constant converts a tensor that onnx-go decoded. A single element comes
// without a slice around it.
func constant(t dense) (tensor, error) {
	c := tensor{shape: append([]int{}, t.Shape()...)}
	switch data := t.Data().(type) {
	case []float32:
		c.f = data
	case float32:
		c.f = []float32{data}
	case []int64:
		c.i = data
	case int64:
		c.i = []int64{data}
	default:
		return c, fmt.Errorf("tensors of %v are not supported", t.Dtype())
	}
	return c, nil
}
