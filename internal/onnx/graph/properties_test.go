package graph_test

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"pictor/internal/onnx/graph"
	"pictor/internal/testkit/onnxfile"
)

// spatial are the attributes of a convolution, drawn at random.
type spatial struct {
	n, in, out, groups         int // in and out are per group
	h, w                       int
	kernel, strides, dilations [2]int
	pads                       [4]int
	bias                       bool
	x, weights, biases         []float32
	attributes                 []onnxfile.Attribute
}

func drawSpatial(t *rapid.T) *spatial {
	side := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
	s := &spatial{
		n: side("n", 1, 2), in: side("in", 1, 9), out: side("out", 1, 10), groups: rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "groups"),
		h: side("h", 1, 12), w: rapid.OneOf(rapid.IntRange(1, 12), rapid.IntRange(28, 70)).Draw(t, "w"),
		bias: rapid.Bool().Draw(t, "bias"),
	}
	for axis := range 2 {
		s.kernel[axis] = side("kernel", 1, 4)
		s.strides[axis] = rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, "stride")
		s.dilations[axis] = rapid.SampledFrom([]int{1, 1, 2, 3}).Draw(t, "dilation")
	}
	for i := range s.pads {
		s.pads[i] = side("pad", 0, 3)
	}
	s.attributes = []onnxfile.Attribute{
		onnxfile.Attr("kernel_shape", s.kernel[:]), onnxfile.Attr("strides", s.strides[:]), onnxfile.Attr("dilations", s.dilations[:]), onnxfile.Attr("group", s.groups), onnxfile.Attr("pads", s.pads[:]), // slices of s: still to be changed
	}
	m := onnxfile.New(1)
	draw := func(n int) []float32 {
		values := make([]float32, n)
		for i := range values {
			values[i] = 2*m.Random.Float32() - 1
		}
		return values
	}
	s.x = draw(s.n * s.groups * s.in * s.h * s.w)
	s.weights = draw(s.groups * s.out * s.in * s.kernel[0] * s.kernel[1])
	s.biases = draw(s.groups * s.out)
	return s
}

// run computes the model with every kernel, and compares.
func (s *spatial) run(t *rapid.T, m *onnxfile.File, want []float32, oh, ow int) {
	for _, kernel := range graph.Kernels() {
		model, err := graph.LoadWith(kernel, m.Bytes(), graph.Options{Threads: rapid.IntRange(1, 4).Draw(t, "threads")})
		if err != nil {
			t.Fatal(err)
		}
		got, shape, err := model.Run(t.Context(), [4]int{s.n, s.groups * s.in, s.h, s.w}, s.x, nil)
		if err != nil {
			t.Fatal(err)
		}
		if shape != [4]int{s.n, s.groups * s.out, oh, ow} {
			t.Fatalf("shape %v", shape)
		}
		if d, at := farthest(want, got); !(d < 1e-4) {
			t.Fatalf("%s: value %d is %v, want %v", kernel, at, got[at], want[at])
		}
	}
}

func TestConv_equals_the_definition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpatial(t)
		reachY, reachX := (s.kernel[0]-1)*s.dilations[0], (s.kernel[1]-1)*s.dilations[1]
		if s.h+s.pads[0]+s.pads[2] <= reachY || s.w+s.pads[1]+s.pads[3] <= reachX {
			s.pads = [4]int{reachY, reachX, 0, 0} // the window would be larger than the picture
		}
		oh := (s.h+s.pads[0]+s.pads[2]-reachY-1)/s.strides[0] + 1
		ow := (s.w+s.pads[1]+s.pads[3]-reachX-1)/s.strides[1] + 1
		add, activation := rapid.Bool().Draw(t, "add"), rapid.SampledFrom([]string{"", "Relu", "PRelu"}).Draw(t, "activation")
		var want []float32
		for i := range s.n * s.groups * s.out * oh * ow {
			x, y, channel, image := i%ow, i/ow%oh, i/ow/oh%(s.groups*s.out), i/ow/oh/(s.groups*s.out)
			sum := 0.0
			if s.bias {
				sum = float64(s.biases[channel])
			}
			for c := range s.in {
				for ky := range s.kernel[0] {
					for kx := range s.kernel[1] {
						iy, ix := y*s.strides[0]-s.pads[0]+ky*s.dilations[0], x*s.strides[1]-s.pads[1]+kx*s.dilations[1]
						if iy < 0 || iy >= s.h || ix < 0 || ix >= s.w {
							continue
						}
						from := (image*s.groups+channel/s.out)*s.in + c
						sum += float64(s.x[(from*s.h+iy)*s.w+ix]) * float64(s.weights[((channel*s.in+c)*s.kernel[0]+ky)*s.kernel[1]+kx])
					}
				}
			}
			if add { // the same convolution, negative and halved
				sum -= sum / 2
			}
			if sum < 0 && activation != "" {
				sum *= map[string]float64{"PRelu": float64(channel) - 1.5}[activation]
			}
			want = append(want, float32(sum))
		}
		m := onnxfile.New(13).Input("x", -1, -1, -1, -1).Output("y")
		shape := []int{s.groups * s.out, s.in, s.kernel[0], s.kernel[1]}
		m.Floats("w", shape, s.weights...)
		inputs := "x w"
		if s.bias {
			m.Floats("b", []int{s.groups * s.out}, s.biases...)
			inputs += " b"
		}
		chain := []func(in, out string){func(in, out string) { m.Node("Conv", inputs, out, s.attributes...) }}
		if add {
			m.Node("Conv", inputs, "z", s.attributes...).Floats("minus", nil, -0.5).Node("Mul", "z minus", "half")
			chain = append(chain, func(in, out string) { m.Node("Add", "half "+in, out) })
		}
		if activation == "PRelu" {
			slopes := make([]float32, s.groups*s.out)
			for i := range slopes {
				slopes[i] = float32(i) - 1.5
			}
			m.Floats("s", []int{len(slopes), 1, 1}, slopes...)
			chain = append(chain, func(in, out string) { m.Node("PRelu", in+" s", out) })
		} else if activation != "" {
			chain = append(chain, func(in, out string) { m.Node(activation, in, out) })
		}
		for i, link := range chain {
			in, out := fmt.Sprint("v", i), fmt.Sprint("v", i+1)
			if i == len(chain)-1 {
				out = "y"
			}
			link(in, out)
		}
		s.run(t, m, want, oh, ow)
	})
}

func TestConvTranspose_equals_the_definition(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := drawSpatial(t)
		fullH := s.strides[0]*(s.h-1) + (s.kernel[0]-1)*s.dilations[0] + 1
		fullW := s.strides[1]*(s.w-1) + (s.kernel[1]-1)*s.dilations[1] + 1
		if s.pads[0]+s.pads[2] >= fullH || s.pads[1]+s.pads[3] >= fullW {
			s.pads = [4]int{} // nothing would be left of the picture
		}
		oh, ow := fullH-s.pads[0]-s.pads[2], fullW-s.pads[1]-s.pads[3]
		sums := make([]float64, s.n*s.groups*s.out*oh*ow)
		for i, v := range s.x {
			x, y, channel, image := i%s.w, i/s.w%s.h, i/s.w/s.h%(s.groups*s.in), i/s.w/s.h/(s.groups*s.in)
			for o := range s.out {
				for ky := range s.kernel[0] {
					for kx := range s.kernel[1] {
						oy, ox := y*s.strides[0]-s.pads[0]+ky*s.dilations[0], x*s.strides[1]-s.pads[1]+kx*s.dilations[1]
						if oy < 0 || oy >= oh || ox < 0 || ox >= ow {
							continue
						}
						to := (image*s.groups+channel/s.in)*s.out + o
						sums[(to*oh+oy)*ow+ox] += float64(v) * float64(s.weights[((channel*s.out+o)*s.kernel[0]+ky)*s.kernel[1]+kx])
					}
				}
			}
		}
		want := make([]float32, len(sums))
		for i, sum := range sums {
			if s.bias {
				sum += float64(s.biases[i/oh/ow%(s.groups*s.out)])
			}
			want[i] = float32(max(sum, 0))
		}
		m := onnxfile.New(13).Input("x", -1, -1, -1, -1).Output("y")
		m.Floats("w", []int{s.groups * s.in, s.out, s.kernel[0], s.kernel[1]}, s.weights...)
		inputs := "x w"
		if s.bias {
			m.Floats("b", []int{s.groups * s.out}, s.biases...)
			inputs += " b"
		}
		m.Node("ConvTranspose", inputs, "h", s.attributes...).Node("Relu", "h", "y")
		s.run(t, m, want, oh, ow)
	})
}

// Seven pixels become two: the second lies at exactly 3.5, which float32
// computes as 3.4999998, and the wrong pixel was the nearest.
func TestResize_takes_a_tie_for_a_tie(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		from, to                    int
		coordinate, nearest, inputs string
	}{
		{7, 2, "asymmetric", "round_prefer_ceil", "x none none sizes"},
		{13, 28, "asymmetric", "round_prefer_ceil", "x none none sizes"},
		{11, 26, "asymmetric", "round_prefer_floor", "x none none sizes"},
		{13, 1, "half_pixel", "round_prefer_floor", "x none scales"},
		{9, 6, "pytorch_half_pixel", "round_prefer_ceil", "x none scales"},
	} {
		m := onnxfile.New(11).Input("x", 1, 2, 1, test.from).Output("y", 1, 2, 1, test.to)
		m.Floats("scales", []int{4}, 1, 1, 1, (float32(test.to)+0.3)/float32(test.from)).Ints("sizes", 1, 2, 1, int64(test.to))
		m.Tensor(onnxfile.Raw("none", 1, []int{0}, nil))
		m.Node("Resize", test.inputs, "y", onnxfile.Attr("mode", "nearest"),
			onnxfile.Attr("coordinate_transformation_mode", test.coordinate), onnxfile.Attr("nearest_mode", test.nearest))
		resizesAsONNXRuntime(t, m, [4]int{1, 2, 1, test.from})
	}
}

// Operator set 10 has no coordinate modes, and rounds another way; ONNX
// Runtime is the reference for both.
func TestResize_equals_ONNX_Runtime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		h, w := rapid.IntRange(1, 13).Draw(t, "h"), rapid.IntRange(1, 13).Draw(t, "w")
		oh, ow := rapid.IntRange(1, 30).Draw(t, "oh"), rapid.IntRange(1, 30).Draw(t, "ow")
		mode := rapid.SampledFrom([]string{"nearest", "linear", "cubic"}).Draw(t, "mode")
		opset := rapid.SampledFrom([]int{10, 11, 13, 18}).Draw(t, "opset")
		m := onnxfile.New(opset).Input("x", 1, 2, h, w).Output("y", 1, 2, oh, ow)
		scales := []float32{1, 1, (float32(oh) + 0.3) / float32(h), (float32(ow) + 0.3) / float32(w)}
		m.Floats("scales", []int{4}, scales...).Ints("sizes", 1, 2, int64(oh), int64(ow))
		if opset == 10 {
			if mode == "cubic" {
				mode = "linear"
			}
			m.Node("Resize", "x scales", "y", onnxfile.Attr("mode", mode))
		} else {
			inputs := rapid.SampledFrom([]string{"x none none sizes", "x none scales"}).Draw(t, "inputs")
			m.Tensor(onnxfile.Raw("none", 1, []int{0}, nil)) // operator set 11 has no optional inputs yet
			m.Node("Resize", inputs, "y", onnxfile.Attr("mode", mode),
				onnxfile.Attr("coordinate_transformation_mode", rapid.SampledFrom([]string{"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"}).Draw(t, "coordinate")),
				onnxfile.Attr("nearest_mode", rapid.SampledFrom([]string{"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"}).Draw(t, "nearest")))
		}
		resizesAsONNXRuntime(t, m, [4]int{1, 2, h, w})
	})
}

func resizesAsONNXRuntime(t fataler, m *onnxfile.File, in [4]int) {
	t.Helper()
	pix := picture(1, in[1], in[2], in[3])
	model, err := graph.Load(m.Bytes(), graph.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got, shape, err := model.Run(t.Context(), in, pix, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := reference(t, m.Bytes(), in, shape, pix)
	if d, at := farthest(want, got); !(d < 1e-4) || math.IsNaN(d) {
		t.Fatalf("value %d is %v, ONNX Runtime's %v", at, got[at], want[at])
	}
}
