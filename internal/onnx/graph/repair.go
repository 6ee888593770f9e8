package graph

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// repaired is a model file that onnx-go decodes without loss, and what the
// original says that onnx-go does not pass on.
//
// Cured here, each with a test: onnx-go
//   - hides the operator set's version and the nodes' domains;
//   - drops symbolic sides from declared shapes, and allocates what is
//     declared, whatever its size: types go;
//   - cuts the graph at a value that is declared twice, as an input and in
//     value_info or the outputs: value_info goes;
//   - gives nodes without inputs an input called "<name>/input", which may be
//     another value's name: constants become initializers;
//   - refuses empty tensors, which stand for "absent" in Resize: references to
//     them become the empty name, which means the same;
//   - refuses attributes that are graphs without telling whose they are;
//   - refuses float16 and 8-bit tensors, misreads bool ones, and panics on
//     tensors whose data do not fill their shape: all become float32 or int64,
//     checked;
//   - loses attributes without a type, as old exporters write them;
//   - takes an input that is an output of the same name for two values.
type repaired struct {
	bytes   []byte
	opset   int
	inputs  []declaration // without those that have an initializer
	outputs []string
	names   map[string]string // first output of a node -> what to call the node in errors
}

// declaration is an input with its declared shape; -1 is an open side.
type declaration struct {
	name   string
	kind   int // of its elements, as in TensorProto.DataType
	shape  []int
	shaped bool // false: any shape
}

// message numbers of the fields that are read, from onnx.proto.
const (
	modelGraph, modelOpset                                                       = 7, 8
	graphNode, graphName, graphInitializer, graphInput, graphOutput, graphSparse = 1, 2, 5, 11, 12, 15
	nodeInput, nodeOutput, nodeName, nodeOp, nodeAttribute, nodeDomain           = 1, 2, 3, 4, 5, 7
	tensorDims, tensorType, tensorName, tensorRaw                                = 1, 2, 8, 9
)

// rawNode is a node of the file.
type rawNode struct {
	name, op, domain string
	in, out          []string
	attributes       []attribute
}

func (n *rawNode) String() string {
	if at := slices.IndexFunc(n.out, named); n.name == "" && at >= 0 {
		return fmt.Sprintf("%s (the node that computes %q)", n.op, n.out[at])
	}
	return fmt.Sprintf("%s (node %q)", n.op, n.name)
}

// repair reads a model file and rewrites it.
func repair(model []byte) (*repaired, error) {
	r := &repaired{names: map[string]string{}}
	var graph []byte
	err := eachField(model, func(f field) error {
		switch f.number {
		case modelGraph:
			graph = f.bytes
		case modelOpset:
			return r.readOpset(f.bytes)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if r.opset < 1 {
		return nil, errors.New("the file names no version of the ONNX operators: is it a model?")
	}
	g, err := r.readGraph(graph)
	if err != nil {
		return nil, err
	}
	r.bytes = protowire.AppendTag(nil, modelGraph, protowire.BytesType)
	r.bytes = protowire.AppendBytes(r.bytes, g)
	return r, nil
}

func (r *repaired) readOpset(b []byte) error {
	var domain string
	version := 0
	err := eachField(b, func(f field) error {
		switch f.number {
		case 1:
			domain = string(f.bytes)
		case 2:
			version = int(f.value)
		}
		return nil
	})
	if standard(domain) {
		r.opset = version
	}
	return err
}

func named(value string) bool { return value != "" }

func standard(domain string) bool { return domain == "" || domain == "ai.onnx" }

// readGraph returns the graph as onnx-go shall see it.
func (r *repaired) readGraph(b []byte) ([]byte, error) {
	var nodes []*rawNode
	var inputs []declaration
	initial := map[string][]byte{} // initializers by name, repaired; nil when empty
	var order []string             // their names, in the order of the file
	addTensor := func(name string, b []byte) error {
		t, err := repairTensor(name, b)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		if _, twice := initial[name]; twice || name == "" {
			return fmt.Errorf("two tensors are called %q", name)
		}
		initial[name] = t
		order = append(order, name)
		return nil
	}
	err := eachField(b, func(f field) error {
		switch f.number {
		case graphNode:
			n, err := readNode(f.bytes)
			nodes = append(nodes, n)
			return err
		case graphInitializer:
			return addTensor(lastString(f.bytes, tensorName), f.bytes)
		case graphInput:
			d, err := readDeclaration(f.bytes)
			inputs = append(inputs, d)
			return err
		case graphOutput:
			r.outputs = append(r.outputs, lastString(f.bytes, 1))
		case graphSparse:
			return errors.New("sparse tensors are not supported")
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	kept := nodes[:0]
	for _, n := range nodes {
		if !standard(n.domain) {
			return nil, fmt.Errorf("operator %s.%v is not supported", n.domain, n)
		}
		if n.op != "Constant" {
			kept = append(kept, n)
			continue
		}
		t, err := constantTensor(n)
		if err == nil && len(n.out) == 0 {
			err = errors.New("no output")
		}
		if err == nil {
			err = addTensor(n.out[0], t)
		}
		if err != nil {
			return nil, fmt.Errorf("%v: %w", n, err)
		}
	}
	for _, d := range inputs {
		if _, ok := initial[d.name]; !ok {
			r.inputs = append(r.inputs, d)
		}
	}
	return r.write(kept, initial, order)
}

// write emits a graph that is free of all that onnx-go stumbles over.
func (r *repaired) write(nodes []*rawNode, initial map[string][]byte, order []string) ([]byte, error) {
	known := map[string]bool{}
	b := appendString(nil, graphName, "graph")
	for _, d := range r.inputs {
		if known[d.name] || d.name == "" {
			return nil, fmt.Errorf("two inputs are called %q", d.name)
		}
		known[d.name] = true
		b = appendMessage(b, graphInput, appendString(nil, 1, d.name))
	}
	for _, name := range order {
		if known[name] = true; initial[name] != nil {
			b = appendMessage(b, graphInitializer, initial[name])
		}
	}
	if len(nodes) == 0 {
		return nil, errors.New("the graph has no nodes")
	}
	for _, n := range nodes {
		if len(n.in) == 0 || !slices.ContainsFunc(n.out, named) {
			return nil, fmt.Errorf("operator %v has no inputs or no outputs", n)
		}
		for i, name := range n.in {
			if t, ok := initial[name]; ok && t == nil {
				n.in[i] = ""
			} else if name != "" && !known[name] {
				return nil, fmt.Errorf("%v: input %q is computed nowhere before", n, name)
			}
		}
		for _, name := range n.out {
			if name != "" && known[name] {
				return nil, fmt.Errorf("%v: two values are called %q", n, name)
			}
			known[name] = name != ""
		}
		r.names[n.out[slices.IndexFunc(n.out, named)]] = n.String()
		b = appendMessage(b, graphNode, n.encode())
	}
	if len(r.outputs) == 0 {
		return nil, errors.New("the graph has no outputs")
	}
	for _, name := range r.outputs {
		if !known[name] || initial[name] != nil {
			return nil, fmt.Errorf("output %q is computed nowhere", name)
		}
	}
	// onnx-go wants an output, and makes a second value of one that is an
	// input too; which outputs there are is in r.outputs.
	last := nodes[len(nodes)-1]
	return appendMessage(b, graphOutput, appendString(nil, 1, last.out[0])), nil
}

func (n *rawNode) encode() []byte {
	var b []byte
	for _, s := range n.in {
		b = appendString(b, nodeInput, s)
	}
	for _, s := range n.out {
		b = appendString(b, nodeOutput, s)
	}
	b = appendString(b, nodeName, n.name)
	b = appendString(b, nodeOp, n.op)
	for _, a := range n.attributes {
		b = appendMessage(b, nodeAttribute, a.bytes)
	}
	return b
}

func readNode(b []byte) (*rawNode, error) {
	n := &rawNode{}
	err := eachField(b, func(f field) error {
		switch f.number {
		case nodeInput:
			n.in = append(n.in, string(f.bytes))
		case nodeOutput:
			n.out = append(n.out, string(f.bytes))
		case nodeName:
			n.name = string(f.bytes)
		case nodeOp:
			n.op = string(f.bytes)
		case nodeDomain:
			n.domain = string(f.bytes)
		case nodeAttribute:
			a, err := repairAttribute(f.bytes)
			if a.bytes != nil {
				n.attributes = append(n.attributes, a)
			}
			return err
		}
		return nil
	})
	return n, err
}

// readDeclaration reads an input's or output's name, the type of its elements
// and, as far as it says, its shape: ValueInfo.type(2).tensor_type(1) has
// elem_type(1) and shape(2).dim(1).dim_value(1).
func readDeclaration(b []byte) (declaration, error) {
	d := declaration{}
	err := eachField(b, func(f field) error {
		if f.number == 1 {
			d.name = string(f.bytes)
		}
		if f.number != 2 {
			return nil
		}
		return eachField(f.bytes, func(f field) error { // TypeProto
			if f.number != 1 {
				return fmt.Errorf("input %q is no tensor", d.name)
			}
			return eachField(f.bytes, func(f field) error { // Tensor
				if f.number == 1 {
					d.kind = int(f.value)
				}
				if f.number != 2 {
					return nil
				}
				d.shaped = true
				return eachField(f.bytes, func(f field) error { // TensorShapeProto
					if f.number != 1 {
						return nil
					}
					side := -1
					err := eachField(f.bytes, func(f field) error {
						if f.number == 1 {
							side = int(f.value)
						}
						return nil
					})
					d.shape = append(d.shape, side)
					return err
				})
			})
		})
	})
	return d, err
}
