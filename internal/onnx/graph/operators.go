package graph

import "math"

// operator chooses the implementation of a node. It is the list of what is
// supported.
func (n *node) operator() (operator, error) {
	switch n.op {
	case "Conv":
		return n.conv()
	case "ConvTranspose":
		return n.convTranspose()
	case "BatchNormalization":
		return n.batchNormalization()
	case "MaxPool":
		return n.pool(maxPool)
	case "AveragePool":
		return n.pool(averagePool)
	case "GlobalAveragePool":
		return globalAveragePool, nil
	case "Resize", "Upsample":
		return n.resize()

	case "Relu":
		return unary(func(dst, src []float32) { leakyRelu(dst, src, 0) }), nil
	case "LeakyRelu":
		slope := n.float("alpha", 0.01)
		return unary(func(dst, src []float32) { leakyRelu(dst, src, slope) }), nil
	case "PRelu":
		return prelu, nil
	case "Clip":
		return n.clip()
	case "Sigmoid":
		return unary(sigmoid), nil
	case "HardSigmoid":
		alpha, beta := n.float("alpha", 0.2), n.float("beta", 0.5)
		return each(func(x float32) float32 { return max(0, min(1, alpha*x+beta)) }), nil
	case "HardSwish":
		return each(func(x float32) float32 { return x * max(0, min(1, x/6+0.5)) }), nil
	case "Tanh":
		return each(func(x float32) float32 { return float32(math.Tanh(float64(x))) }), nil
	case "Elu":
		alpha := n.float("alpha", 1)
		return each(func(x float32) float32 {
			if x < 0 {
				return alpha * float32(math.Expm1(float64(x)))
			}
			return x
		}), nil
	case "Exp":
		return each(func(x float32) float32 { return float32(math.Exp(float64(x))) }), nil
	case "Sqrt":
		return each(func(x float32) float32 { return float32(math.Sqrt(float64(x))) }), nil
	case "Abs":
		return each(func(x float32) float32 { return float32(math.Abs(float64(x))) }), nil
	case "Neg":
		return each(func(x float32) float32 { return -x }), nil
	case "Floor":
		return each(func(x float32) float32 { return float32(math.Floor(float64(x))) }), nil
	case "Ceil":
		return each(func(x float32) float32 { return float32(math.Ceil(float64(x))) }), nil

	case "Add", "Sub", "Mul", "Div", "Min", "Max", "Sum", "Pow":
		return n.arithmetic()

	case "Identity":
		return identity, nil
	case "Dropout":
		return dropout, nil
	case "Reshape":
		return n.reshape()
	case "Flatten":
		return n.flatten()
	case "Squeeze":
		return n.squeeze()
	case "Unsqueeze":
		return n.unsqueeze()
	case "Shape":
		return n.shapeOf()
	case "Cast":
		return n.cast()
	case "ConstantOfShape":
		return n.constantOfShape()

	case "Concat":
		return n.concat()
	case "Split":
		return n.split()
	case "Slice":
		return n.slice()
	case "Gather":
		return n.gather()
	case "Transpose":
		return n.transpose()
	case "Expand":
		return expand, nil
	case "Pad":
		return n.pad()
	case "DepthToSpace":
		return n.depthToSpace()
	case "SpaceToDepth":
		return n.spaceToDepth()
	}
	return nil, errUnsupported
}
