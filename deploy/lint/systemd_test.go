package lint_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var units = []string{"pictor-serve.service", "pictor-worker.service"}

// machine is a root folder with what the units name, for systemd to look at.
func machine(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for path, mode := range map[string]os.FileMode{"usr/local/bin/pictor": 0o755, "etc/pictor/pictor.env": 0o600} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	folder := filepath.Join(root, "etc/systemd/system")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range units {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(read(t, "../systemd/"+name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Those that the units are ordered by.
	for _, name := range []string{"sysinit.target", "basic.target", "shutdown.target", "network-online.target", "multi-user.target", "local-fs.target", "-.mount", "tmp.mount", "system.slice", "-.slice"} {
		unit := "[Unit]\n"
		switch filepath.Ext(name) {
		case ".mount":
			where := map[string]string{"-.mount": "/", "tmp.mount": "/tmp"}[name]
			unit += "[Mount]\nWhat=none\nWhere=" + where + "\n"
		case ".slice":
			unit += "[Slice]\n"
		}
		if err := os.WriteFile(filepath.Join(folder, name), []byte(unit), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func analyze(t *testing.T, args ...string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "systemd-analyze", args...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Errorf("systemd-analyze %v: %v\n%s", args, err, out)
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	root := machine(t)
	for _, name := range units {
		analyze(t, "verify", "--man=no", "--recursive-errors=one", "--root="+root, name)
		// 0.0 is a process that can do nothing, 10.0 one that can do all.
		analyze(t, "security", "--offline=true", "--no-pager", "--threshold=20", "--root="+root, name)
	}
}
