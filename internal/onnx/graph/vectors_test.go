package graph_test

import (
	"archive/zip"
	"fmt"
	"io"
	"path"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"pictor/internal/onnx/graph"
)

// The ONNX project's own tests of its operators: see testdata/README.md.
func TestRun_passes_the_ONNX_operator_tests(t *testing.T) {
	t.Parallel()
	archive, err := zip.OpenReader("testdata/onnx-node-tests.zip")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { archive.Close() })
	files := map[string]map[string][]byte{} // by test, by name
	for _, f := range archive.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if test := path.Dir(f.Name); test != "." {
			if files[test] == nil {
				files[test] = map[string][]byte{}
			}
			files[test][path.Base(f.Name)] = b
		}
	}
	if len(files) < 200 {
		t.Fatalf("%d tests in the archive", len(files))
	}
	for test, parts := range files {
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			for _, kernel := range graph.Kernels() {
				runVector(t, kernel, parts)
			}
		})
	}
}

func runVector(t *testing.T, kernel string, parts map[string][]byte) {
	t.Helper()
	tensors := func(kind string) (all []graph.Tensor) {
		for i := 0; ; i++ {
			b, ok := parts[fmt.Sprintf("%s_%d.pb", kind, i)]
			if !ok {
				return all
			}
			v, err := graph.ParseTensor(b)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, v)
		}
	}
	for i, want := range tensors("output") {
		options := graph.Options{Threads: 2, Output: graph.Outputs(parts["model.onnx"])[i]}
		m, err := graph.LoadWith(kernel, parts["model.onnx"], options)
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.RunAll(t.Context(), tensors("input")...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-5, 1e-5), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("kernel %s, output %d (-want +got):\n%s", kernel, i, strings.TrimSpace(diff))
		}
	}
}
