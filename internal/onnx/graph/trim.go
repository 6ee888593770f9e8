package graph

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Trimmed is a model without what tiles of a picture have no use for.
type Trimmed struct {
	File []byte
	// Margin is how many pixels of the input, at each edge, the output lacks.
	Margin int
	// Block is the side of the blocks of pixels that are left unmixed: where
	// the model gives a pixel of band c at y, x, this one gives it in band
	// (c*Block + y%Block)*Block + x%Block at y/Block, x/Block. 1 for none.
	Block int
}

// Trim rewrites a model that enlarges pictures so that it makes nothing up
// beyond the edges of its input: convolutions take no padding, and the output
// lacks what padding would have spoilt. A last DepthToSpace, which only moves
// pixels, is left to the caller. All values that are left stay the same.
//
// Tiles of a picture are given with a margin that is thrown away afterwards.
// Without padding each layer computes less of it: half as much in all.
//
// A model with an operator that is not known to work on each place of the
// picture alike is refused.
func Trim(model []byte) (trimmed Trimmed, err error) {
	defer recoverInto(&err) // onnx-go panics on some malformed tensors
	t := trimming{
		areas: map[string]area{}, tensors: map[string][]byte{}, from: map[string]*rawNode{}, uses: map[string]int{},
		cuts: map[string][]byte{}, changed: map[*rawNode]bool{}, block: 1,
	}
	var file []byte
	err = eachField(model, func(f field) error {
		switch f.number {
		case modelGraph:
			graph, err := t.graph(f.bytes)
			file = appendMessage(file, modelGraph, graph)
			return err
		case modelOpset:
			if version := lastNumber(f.bytes, 2); standard(lastString(f.bytes, 1)) && version < sliceByInputs {
				return fmt.Errorf("operators of version %d", version)
			}
		}
		file = append(file, f.whole...)
		return nil
	})
	if err != nil {
		return Trimmed{}, fmt.Errorf("trim the model: %w", err)
	}
	return Trimmed{File: file, Margin: t.margin, Block: t.block}, nil
}

// sliceByInputs is the first version of the operators in which Slice takes its
// limits as inputs.
const sliceByInputs = 10

// area is which part of the picture a value of the graph shows: it lacks `lost`
// of its own pixels at each edge, and is `scale` times as large as the input.
type area struct{ lost, scale int }

// Bounds of what a model for pictures can mean.
const maxScale, maxPadding = 64, 1000

type trimming struct {
	areas   map[string]area   // of the values that come from the input
	tensors map[string][]byte // constants, encoded
	from    map[string]*rawNode
	uses    map[string]int    // how many nodes take a value
	cuts    map[string][]byte // nodes that were added, encoded, by their output
	changed map[*rawNode]bool
	margin  int
	block   int
}

func (t *trimming) graph(b []byte) ([]byte, error) {
	var out []byte // all that is neither node nor output
	var inputs []string
	var outputs [][]byte
	var nodes []*rawNode
	original := map[*rawNode][]byte{}
	err := eachField(b, func(f field) error {
		const valueInfo = 13
		switch f.number {
		case graphNode:
			n, err := readNode(f.bytes)
			nodes, original[n] = append(nodes, n), f.bytes
			return err
		case graphOutput:
			outputs = append(outputs, f.bytes)
			return nil
		case valueInfo: // has shapes that are no longer true
			return nil
		case graphInitializer:
			t.tensors[lastString(f.bytes, tensorName)] = f.bytes
		case graphInput:
			inputs = append(inputs, lastString(f.bytes, 1))
		}
		out = append(out, f.whole...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, name := range inputs {
		if t.tensors[name] == nil { // old files list their weights among the inputs
			t.areas[name] = area{scale: 1}
		}
	}
	if len(t.areas) != 1 || len(outputs) != 1 || len(nodes) == 0 {
		return nil, fmt.Errorf("%d inputs, %d outputs and %d nodes", len(t.areas), len(outputs), len(nodes))
	}
	output := lastString(outputs[0], 1)
	if last := nodes[len(nodes)-1]; slices.Equal(last.out, []string{output}) && last.mixes() > 0 {
		t.block, output = last.mixes(), last.in[0]
		nodes = nodes[:len(nodes)-1]
	}
	t.uses[output]++
	if err := t.nodes(nodes); err != nil {
		return nil, err
	}
	end, ok := t.areas[output]
	if !ok || end.lost%end.scale != 0 {
		return nil, errors.New("the output lacks no whole pixels of the input")
	}
	t.margin = end.lost / end.scale
	for _, n := range nodes {
		for _, name := range n.in {
			out = append(out, t.cuts[name]...)
			delete(t.cuts, name)
		}
		if t.changed[n] {
			original[n] = n.encode()
		}
		out = appendMessage(out, graphNode, original[n])
	}
	return appendMessage(out, graphOutput, declare(output, outputs[0])), nil
}

func (t *trimming) nodes(nodes []*rawNode) error {
	for _, n := range nodes {
		for _, name := range n.in {
			t.uses[name]++
		}
	}
	for _, n := range nodes {
		if !standard(n.domain) || len(n.out) != 1 {
			return fmt.Errorf("%v: no standard operator", n)
		}
		if n.op == "Constant" {
			value, err := constantTensor(n)
			if err != nil {
				return fmt.Errorf("%v: %w", n, err)
			}
			t.tensors[n.out[0]] = value
			continue
		}
		a, err := t.node(n)
		if err != nil {
			return fmt.Errorf("%v: %w", n, err)
		}
		if a.scale > maxScale {
			return fmt.Errorf("%v: enlarges to %d times the size", n, a.scale)
		}
		t.areas[n.out[0]], t.from[n.out[0]] = a, n
	}
	return nil
}

// declare is the declaration of a value of any shape, with the type of another:
// ValueInfo.type(2).tensor_type(1).elem_type(1).
func declare(name string, like []byte) []byte {
	kind := lastNumber(lastMessage(lastMessage(like, 2), 1), 1)
	element := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), kind)
	return appendMessage(appendString(nil, 1, name), 2, appendMessage(nil, 1, element))
}

// mixes is the side of the blocks that a DepthToSpace makes of bands, as
// PyTorch's pixel shuffle does; 0 for any other node.
func (n *rawNode) mixes() int {
	block := n.number("blocksize")
	if n.op != "DepthToSpace" || !standard(n.domain) || n.text("mode") != "CRD" || len(n.in) != 1 || block < 1 || block > maxScale {
		return 0
	}
	return int(block)
}

// node takes the padding out of a node, and says which area its output shows.
func (t *trimming) node(n *rawNode) (area, error) {
	var shown []string
	alike := true // for all places
	for _, name := range n.in {
		if _, ok := t.areas[name]; ok {
			shown = append(shown, name)
		} else {
			alike = alike && t.alike(name)
		}
	}
	if len(shown) == 0 {
		return area{}, errors.New("does not work on the picture")
	}
	a := t.areas[shown[0]]
	switch n.op {
	case "Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "Tanh", "Identity", "Add", "Sub", "Mul", "Concat":
		if !alike || n.op == "Concat" && n.number("axis") != 1 {
			return area{}, errors.New("does not treat all places alike")
		}
		return t.align(n)
	case "Conv":
		if len(shown) != 1 || shown[0] != n.in[0] || len(n.in) < 2 {
			return area{}, errors.New("its weights are no constants")
		}
		pad, err := n.takePadding(encodedShape(t.tensors[n.in[1]]))
		a.lost += pad
		t.changed[n] = true
		return a, err
	case "DepthToSpace":
		block := int(n.number("blocksize"))
		if block < 1 || block > maxScale {
			return area{}, fmt.Errorf("a block of %d", block)
		}
		return area{a.lost * block, a.scale * block}, nil
	case "Resize":
		scale, err := t.repeats(n)
		return area{a.lost * scale, a.scale * scale}, err
	default:
		return area{}, errors.New("may look at all of the picture")
	}
}

// alike says whether a constant is the same for all places of the picture: its
// rows and columns, the last two axes, are one.
func (t *trimming) alike(name string) bool {
	if name == "" {
		return true
	}
	value := t.tensors[name]
	if value == nil {
		return false
	}
	shape := encodedShape(value)
	for _, side := range shape[max(0, len(shape)-2):] {
		if side != 1 {
			return false
		}
	}
	return true
}

func encodedShape(tensor []byte) []uint64 {
	var shape []uint64
	_ = eachField(tensor, func(f field) error { // whoever loads the model reads it with care
		if f.number == tensorDims {
			more, _ := f.varints()
			shape = append(shape, more...)
		}
		return nil
	})
	return shape
}

// align cuts the operands to the area that all of them show.
func (t *trimming) align(n *rawNode) (area, error) {
	common := area{}
	for _, name := range n.in {
		if a, ok := t.areas[name]; ok {
			if common.scale != 0 && common.scale != a.scale {
				return area{}, errors.New("operands of different scales")
			}
			common = area{max(common.lost, a.lost), a.scale}
		}
	}
	for i, name := range n.in {
		if a, ok := t.areas[name]; ok {
			n.in[i] = t.cut(name, common.lost-a.lost)
			t.changed[n] = t.changed[n] || n.in[i] != name
		}
	}
	return common, nil
}

// cut takes d pixels off each edge of a value and returns the name of what is
// left. It does so as early as can be, so that nothing is computed in vain.
func (t *trimming) cut(name string, d int) string {
	if d == 0 {
		return name
	}
	a := t.areas[name]
	if n := t.from[name]; n != nil && t.uses[name] == 1 && len(n.in) > 0 {
		if from, ok := t.areas[n.in[0]]; ok && t.single(n) && d%(a.scale/from.scale) == 0 {
			n.in[0] = t.cut(n.in[0], d/(a.scale/from.scale))
			t.changed[n] = true
			t.areas[name] = area{a.lost + d, a.scale}
			return name
		}
	}
	left := area{a.lost + d, a.scale}
	to := fmt.Sprintf("%s without %d", name, left.lost)
	if _, done := t.areas[to]; done {
		return to
	}
	names := []string{name, to + "/from", to + "/to", to + "/axes"}
	var b []byte
	for i, values := range [][2]int{{d, d}, {-d, -d}, {2, 3}} {
		var raw []byte
		for _, v := range values {
			raw = protowire.AppendFixed64(raw, uint64(int64(v)))
		}
		b = appendMessage(b, graphInitializer, rawTensor(names[i+1], []uint64{2}, typeInt64, raw))
	}
	n := rawNode{name: to, op: "Slice", in: names, out: []string{to}}
	t.cuts[to] = appendMessage(b, graphNode, n.encode())
	t.areas[to] = left
	return to
}

// single says whether the node looks at its first input alone, constants aside.
func (t *trimming) single(n *rawNode) bool {
	return !slices.ContainsFunc(n.in[1:], func(name string) bool { _, shows := t.areas[name]; return shows })
}

// repeats is by how much a Resize enlarges by repeating pixels, which it does
// alike at each place.
func (t *trimming) repeats(n *rawNode) (int, error) {
	failure := errors.New("does more than repeat pixels")
	position, rounding := n.text("coordinate_transformation_mode"), n.text("nearest_mode")
	switch {
	case n.text("mode") != "nearest" && n.text("mode") != "", len(n.in) != 3, t.tensors[n.in[2]] == nil:
		return 0, failure
	case position == "asymmetric" && rounding == "floor":
	case position == "half_pixel" || position == "pytorch_half_pixel" || position == "":
		if rounding != "round_prefer_floor" && rounding != "" {
			return 0, failure
		}
	default:
		return 0, failure
	}
	encoded, err := repairTensor(n.in[2], t.tensors[n.in[2]])
	if err != nil || encoded == nil {
		return 0, failure
	}
	scales, err := decodeTensor(encoded)
	if err != nil {
		return 0, err
	}
	s := scales.f
	if len(s) != 4 || s[0] != 1 || s[1] != 1 || s[2] != s[3] || !(s[2] >= 1 && s[2] <= maxScale) || s[2] != float32(int(s[2])) {
		return 0, failure
	}
	return int(s[2]), nil
}

// takePadding clears the padding of a Conv with weights of a shape, and returns
// what it was on each side.
func (n *rawNode) takePadding(weights []uint64) (int, error) {
	pads, dilations := n.numbers("pads"), n.numbers("dilations")
	if len(pads) == 0 {
		pads = []int{0, 0, 0, 0}
	}
	if len(dilations) == 0 {
		dilations = []int{1, 1}
	}
	if auto := n.text("auto_pad"); len(pads) != 4 || len(dilations) != 2 || len(weights) != 4 || auto != "" && auto != "NOTSET" {
		return 0, errors.New("its padding is not plain")
	}
	for axis := range 2 {
		if pads[0] < 0 || pads[0] > maxPadding || pads[axis] != pads[0] || pads[axis+2] != pads[0] || 2*pads[0] != dilations[axis]*(int(weights[2+axis])-1) {
			return 0, errors.New("its padding does not keep the size")
		}
	}
	for _, stride := range n.numbers("strides") {
		if stride != 1 {
			return 0, errors.New("it leaves places out")
		}
	}
	n.attributes = slices.DeleteFunc(n.attributes, func(a attribute) bool { return a.name == "pads" })
	return pads[0], nil
}

// attribute calls read for the fields of an attribute, if the node has it.
func (n *rawNode) attribute(name string, read func(field)) {
	for _, a := range n.attributes {
		if a.name == name {
			_ = eachField(a.bytes, func(f field) error { read(f); return nil }) // was read before
		}
	}
}

func (n *rawNode) text(name string) (s string) {
	n.attribute(name, func(f field) {
		if f.number == attributeString {
			s = string(f.bytes)
		}
	})
	return s
}

func (n *rawNode) number(name string) (v int64) {
	n.attribute(name, func(f field) {
		if f.number == attributeInt {
			v = int64(f.value)
		}
	})
	return v
}

func (n *rawNode) numbers(name string) (all []int) {
	n.attribute(name, func(f field) {
		if f.number == attributeInts {
			values, _ := f.varints()
			for _, v := range values {
				all = append(all, int(int64(v)))
			}
		}
	})
	return all
}
