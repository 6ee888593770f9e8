"""Writes and reads ONNX files: opset 13, IR 7, float32, as the shipped models are."""

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

IR_VERSION, OPSET = 7, 13


def convolutions(path):
    """Weight and bias of the file's convolutions that have both, in the order of computing."""
    model = onnx.load(path)
    values = {t.name: numpy_helper.to_array(t).copy() for t in model.graph.initializer}
    return [
        tuple(values[name] for name in node.input[1:])
        for node in model.graph.node
        if node.op_type in ("Conv", "ConvTranspose") and len(node.input) == 3
    ]


class Graph:
    """Collects nodes and weights; every method returns the name of its output."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def add(self, operator, inputs, **attributes):
        name = f"{operator.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], name=name, **attributes))
        return name

    def constant(self, values):
        name = f"weight{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def convolution(self, x, weight, bias=None, stride=1):
        """A convolution with zeros around; weight and bias are tensors of PyTorch."""
        inputs = [x, self.constant(weight.detach().cpu().numpy())]
        if bias is not None:
            inputs.append(self.constant(bias.detach().cpu().numpy()))
        side = weight.shape[-1]
        return self.add("Conv", inputs, kernel_shape=[side] * 2, strides=[stride] * 2, pads=[side // 2] * 4,
                        dilations=[1, 1], group=1)

    def relu(self, x):
        return self.add("Relu", [x])

    def save(self, path, name, source, target, result, extra=()):
        """Writes the file; source and target are (name, shape), result the last node's output."""
        self.nodes[[n.output[0] for n in self.nodes].index(result)].output[0] = target[0]
        inputs = [helper.make_tensor_value_info(source[0], TensorProto.FLOAT, source[1])]
        outputs = [helper.make_tensor_value_info(target[0], TensorProto.FLOAT, target[1])]
        graph = helper.make_graph(self.nodes, name, inputs, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="pictor")
        model.ir_version = IR_VERSION
        onnx.checker.check_model(model, full_check=True)
        onnx.save(model, path)


def run(path, x):
    """The output of a saved file for one input, by ONNX Runtime on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]
