package graph

import (
	"context"
	"fmt"
	"slices"
)

// foldLimit bounds the memory for what is computed at Load, out of constants.
const foldLimit = 256 << 20

// compiler turns a decoded graph into a plan.
type compiler struct {
	kernel    kernel
	opset     int
	constants []tensor // by value
	isConst   []bool
	nodes     []*node
	output    int
	limit     int64
}

// compile makes the plan for one output.
func compile(n *network, r *repaired, output string, k kernel, limit int64) (*plan, error) {
	output, err := outputOf(r, output)
	if err != nil {
		return nil, err
	}
	c := &compiler{kernel: k, opset: r.opset, limit: min(limit, foldLimit), output: -1}
	p := &plan{}
	numbers := map[string]int{}
	number := func(v *value) (int, error) {
		if v.name == "" {
			return -1, nil
		}
		if at, ok := numbers[v.name]; ok {
			return at, nil
		}
		t := tensor{}
		if v.data != nil {
			var err error
			if t, err = constant(v.data); err != nil {
				return 0, fmt.Errorf("tensor %q: %w", v.name, err)
			}
		}
		numbers[v.name] = c.add(t, v.data != nil)
		return numbers[v.name], nil
	}
	for _, d := range r.inputs {
		at, _ := number(&value{name: d.name}) // fails only on tensors
		p.inputs = append(p.inputs, at)
	}
	for _, op := range n.operations {
		nd := &node{op: op.Name, attributes: op.Attributes, compiler: c}
		for _, v := range op.in {
			at, err := number(v)
			if err != nil {
				return nil, err
			}
			nd.in = append(nd.in, at)
		}
		for _, v := range op.out {
			if nd.label == "" && v.name != "" {
				nd.label = r.names[v.name]
			}
			at, _ := number(v)
			nd.out = append(nd.out, at)
		}
		c.nodes = append(c.nodes, nd)
	}
	at, ok := numbers[output]
	if !ok {
		return nil, fmt.Errorf("output %q is computed nowhere", output)
	}
	c.output = at
	if err := c.prune(); err != nil {
		return nil, err
	}
	if err := c.fold(); err != nil {
		return nil, err
	}
	c.fuse()
	if err := c.finish(p); err != nil {
		return nil, err
	}
	return p, nil
}

// add makes a new value.
func (c *compiler) add(t tensor, constant bool) int {
	c.constants = append(c.constants, t)
	c.isConst = append(c.isConst, constant)
	return len(c.constants) - 1
}

// prune drops what the output does not need, and makes one node for each
// output of a Split: no operator has two results after this.
func (c *compiler) prune() error {
	needed := make([]bool, len(c.constants))
	needed[c.output] = true
	var kept []*node
	for i := len(c.nodes) - 1; i >= 0; i-- {
		n := c.nodes[i]
		used := 0
		for at, v := range n.out {
			if v < 0 || !needed[v] {
				continue
			}
			used++
			switch {
			case n.op == "Split":
				kept = append(kept, &node{op: n.op, label: n.label, attributes: n.attributes, compiler: c,
					in: n.in, out: []int{v}, part: at, parts: len(n.out)})
			case at == 0:
				kept = append(kept, n)
			default:
				if _, err := n.compile(); err != nil {
					return err // the operator itself may be unsupported
				}
				return fmt.Errorf("%s: output number %d is not supported", n.label, at+1)
			}
		}
		if used > 0 {
			for _, v := range n.in {
				if v >= 0 {
					needed[v] = true
				}
			}
		}
	}
	slices.Reverse(kept)
	c.nodes = kept
	return nil
}

// fold computes what depends on constants only.
func (c *compiler) fold() error {
	kept := c.nodes[:0]
	for _, n := range c.nodes {
		if !slices.ContainsFunc(n.in, func(v int) bool { return v >= 0 && !c.isConst[v] }) {
			s, err := n.compile()
			if err != nil {
				return err
			}
			s.out = 0
			r := &run{ctx: context.Background(), threads: 1, arena: arena{limit: c.limit}}
			values := plan{steps: []step{s}, output: 0, constants: []tensor{{}}}
			for i, v := range s.in {
				if v >= 0 {
					values.constants = append(values.constants, c.constants[v])
					s.in[i] = len(values.constants) - 1
				}
			}
			result, err := r.execute(&values, nil, nil)
			if err != nil {
				return err
			}
			result.from = nil
			c.constants[n.out[0]], c.isConst[n.out[0]] = result, true
			continue
		}
		kept = append(kept, n)
	}
	c.nodes = kept
	return nil
}

// finish compiles the operators and finds out when each value is last read.
func (c *compiler) finish(p *plan) error {
	for _, n := range c.nodes {
		s, err := n.compile()
		if err != nil {
			return err
		}
		p.steps = append(p.steps, s)
	}
	read := make([]bool, len(c.constants))
	read[c.output] = true
	for i := len(p.steps) - 1; i >= 0; i-- {
		s := &p.steps[i]
		for _, v := range s.in {
			if v >= 0 && !read[v] && !c.isConst[v] {
				read[v] = true
				s.frees = append(s.frees, v)
			}
		}
	}
	p.output = c.output
	p.constants = c.constants
	for v := range p.constants {
		if !c.isConst[v] {
			p.constants[v] = tensor{}
		}
	}
	// What was packed, folded or fused is not kept twice.
	for v := range p.constants {
		if !read[v] && !slices.ContainsFunc(p.steps, func(s step) bool { return slices.Contains(s.in, v) }) {
			p.constants[v] = tensor{}
		}
	}
	return nil
}
