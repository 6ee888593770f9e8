package graph

import "slices"

// fuse makes one node of a convolution and what follows it, if nobody else
// reads what is between: BatchNormalization goes into the weights; the
// addition of another tensor and an activation are done by the kernel, on sums
// that are still in its registers.
func (c *compiler) fuse() {
	readers := map[int][]*node{} // once per occurrence
	position := map[*node]int{}
	for i, n := range c.nodes {
		position[n] = i
		for _, v := range n.in {
			readers[v] = append(readers[v], n)
		}
	}
	// From the end, so that of two convolutions that are added up the later
	// one takes the addition.
	for i := len(c.nodes) - 1; i >= 0; i-- {
		n := c.nodes[i]
		if n == nil || n.op != "Conv" && n.op != "ConvTranspose" {
			continue
		}
		if _, ok := n.constant(1); !ok {
			continue
		}
		for n.slope == nil && n.out[0] != c.output && len(readers[n.out[0]]) == 1 {
			next := readers[n.out[0]][0]
			if !n.absorb(next) {
				break
			}
			for _, v := range next.in {
				for k, reader := range readers[v] {
					if reader == next {
						readers[v][k] = n
					}
				}
			}
			// The fused node takes the later place, where all inputs are there.
			c.nodes[position[n]], c.nodes[position[next]] = nil, n
			position[n] = position[next]
			n.out = next.out
			n.label += " + " + next.label
		}
	}
	c.nodes = slices.DeleteFunc(c.nodes, func(n *node) bool { return n == nil })
}

// absorb takes the work of the next node into a convolution; false if that is
// not possible.
func (n *node) absorb(next *node) bool {
	added := len(n.in) > 3
	switch next.op {
	case "BatchNormalization":
		return !added && next.in[0] == n.out[0] && n.absorbNormalization(next)
	case "Add":
		if added || n.op != "Conv" || len(next.in) != 2 || next.in[0] < 0 || next.in[1] < 0 {
			return false
		}
		other := next.in[0]
		if other == n.out[0] {
			other = next.in[1]
		}
		if n.compiler.isConst[other] { // likely to broadcast
			return false
		}
		n.in = append(slices.Clone(n.in), -1, -1)[:4]
		n.in[3] = other
		return true
	case "Relu":
		n.slope = []float32{0}
	case "LeakyRelu":
		n.slope = []float32{next.float("alpha", 0.01)}
	case "PRelu":
		slope, ok := next.constant(1)
		if !ok || next.in[0] != n.out[0] || !n.fitsSlope(slope) {
			return false
		}
		n.slope = slope.f
	default:
		return false
	}
	return next.err == nil
}

// fitsSlope tells whether a PRelu's slope is one for all or one per channel.
func (n *node) fitsSlope(slope tensor) bool {
	w, _ := n.constant(1)
	if len(slope.f) == 1 {
		return true
	}
	rank := len(slope.shape)
	at := rank - len(w.shape) + 1 // of the channels
	if n.op != "Conv" || slope.isInt() || at < 0 || at >= rank {
		return false
	}
	return slope.shape[at] == w.shape[0] && product(slope.shape) == w.shape[0]
}
