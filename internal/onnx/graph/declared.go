package graph

import "errors"

// Value is an input or an output as a model file declares it.
type Value struct {
	Name  string
	Type  int   // Float32, Float16 or another one of TensorProto.DataType
	Shape []int // -1 is an open side; nil is any shape
}

// Types of elements.
const (
	Float32 = 1
	Float16 = 10
)

// Declared reads what a model file says of its inputs, without those that have
// a value in the file, and of its outputs. It copies nothing of the weights.
func Declared(model []byte) (inputs, outputs []Value, err error) {
	var graph []byte
	err = eachField(model, func(f field) error {
		if f.number == modelGraph {
			graph = f.bytes
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	if graph == nil {
		return nil, nil, errors.New("the file holds no graph: is it a model?")
	}
	given := map[string]bool{}
	err = eachField(graph, func(f field) error {
		switch f.number {
		case graphInitializer:
			given[lastString(f.bytes, tensorName)] = true
		case graphInput, graphOutput:
			d, err := readDeclaration(f.bytes)
			v := Value{Name: d.name, Type: d.kind, Shape: d.shape}
			if f.number == graphInput {
				inputs = append(inputs, v)
			} else {
				outputs = append(outputs, v)
			}
			return err
		}
		return nil
	})
	free := inputs[:0]
	for _, v := range inputs {
		if !given[v.Name] {
			free = append(free, v)
		}
	}
	return free, outputs, err
}

// Accepts says whether a tensor of the shape fits: a side of 0 stands for one
// that varies, which only an open side takes.
func (v Value) Accepts(shape [4]int) bool {
	if v.Shape == nil {
		return true
	}
	if len(v.Shape) != len(shape) {
		return false
	}
	for i, side := range v.Shape {
		if side >= 0 && side != shape[i] {
			return false
		}
	}
	return true
}
