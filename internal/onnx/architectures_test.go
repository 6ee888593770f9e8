package onnx_test

import (
	"math"
	"slices"
	"testing"

	"pictor/internal/onnx"
	"pictor/internal/testkit/onnxfile"
)

// The networks of the catalogue, with few channels and random weights: those
// that onnx-go can run give the same on both engines.
func TestEngines_agree_on_foreign_architectures(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file     []byte
		h, w     int
		channels int
		scale    int
	}{
		"U2-Net":      {onnxfile.U2Net(96, 4), 96, 96, 1, 1},
		"U2-Net, odd": {onnxfile.U2Net(101, 8), 101, 101, 1, 1},
		"IS-Net":      {onnxfile.ISNet(128, 4), 128, 128, 1, 1},
		"RRDB x4":     {onnxfile.RRDB(4, 8, 2), 21, 34, 3, 4},
		"RRDB x2":     {onnxfile.RRDB(2, 8, 2), 22, 34, 3, 2},
		"SRVGG":       {onnxfile.SRVGG(8, 32), 40, 27, 3, 4},
		"RRDB, tiny":  {onnxfile.RRDB(4, 8, 1), 2, 3, 3, 4},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := noise(c.h, c.w)
			var results [2]onnx.Tensor
			for i, engine := range []string{onnx.Runtime, onnx.Go} {
				m, err := open(t, engine).Load(name, c.file, onnx.Options{})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				results[i] = onnx.NewTensor(1, c.channels, c.h*c.scale, c.w*c.scale)
				if err := m.Run(t.Context(), in, results[i]); err != nil {
					t.Fatal(err)
				}
			}
			varied(t, results[0])
			for i, want := range results[0].Data {
				if got := results[1].Data[i]; !(math.Abs(float64(got-want)) <= 1e-3) {
					t.Fatalf("value %d: %v, ONNX Runtime gives %v", i, got, want)
				}
			}
		})
	}
}

// The transformers run on ONNX Runtime only.
func TestRun_of_transformers(t *testing.T) {
	t.Parallel()
	for name, file := range map[string][]byte{"BiRefNet": onnxfile.BiRefNet(128), "BEN2": onnxfile.BEN2(128)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := open(t, onnx.Runtime).Load(name, file, onnx.Options{Input: [4]int{1, 3, 128, 128}})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			out := onnx.NewTensor(1, 1, 128, 128)
			if err := m.Run(t.Context(), noise(128, 128), out); err != nil {
				t.Fatal(err)
			}
			varied(t, out)
			if _, err := open(t, onnx.Go).Load(name, file, onnx.Options{}); err == nil {
				t.Error("onnx-go loads it: the catalogue need not keep it from onnx-go any more")
			}
		})
	}
}

// varied refuses a result that could not show a mistake.
func varied(t *testing.T, out onnx.Tensor) {
	t.Helper()
	if span := slices.Max(out.Data) - slices.Min(out.Data); !(span > 0.2) {
		t.Errorf("the values span %v: the network says nothing", span)
	}
}
