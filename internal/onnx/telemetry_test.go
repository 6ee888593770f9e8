package onnx_test

import (
	"os"
	"os/exec"
	"testing"

	"pictor/internal/job"
	"pictor/internal/models"
	"pictor/internal/onnx"
)

// ONNX Runtime 1.30 keeps an id of the machine and a database of events in the
// user's home, and sends the events to Microsoft. We found its log files in
// /tmp and a call of blkid. Nobody who runs this service for their customers'
// pictures expects that, so a process that runs a model must leave nothing.
func TestRuntime_reports_to_nobody(t *testing.T) {
	t.Parallel()
	const child = "RUN_A_MODEL"
	if os.Getenv(child) != "" {
		runModel(t)
		return
	}
	library, err := onnx.FindLibrary() // before the home moves
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	cmd.Env = append(os.Environ(), child+"=1", "HOME="+home, "TMPDIR="+home, "XDG_CACHE_HOME="+home, "PICTOR_ORT_LIB="+library)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	left, err := os.ReadDir(home)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		t.Errorf("it left %s", f)
	}
}

func runModel(t *testing.T) {
	engine, err := onnx.Open(onnx.Config{Engine: onnx.Runtime})
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	d, err := models.For(job.Upscale2x)
	if err != nil {
		t.Fatal(err)
	}
	file, err := d.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	m, err := engine.Load(d.Name, file, onnx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Run(t.Context(), onnx.NewTensor(1, 3, 32, 32), onnx.NewTensor(1, 3, 64, 64)); err != nil {
		t.Fatal(err)
	}
}
