package main

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Postgres refuses to run as root, and nobody but root can become another
// user: the stack has to cope with both. The other tests run as whoever runs
// them; this one runs as a normal user also where that is root.
func TestDev_runs_as_a_normal_user(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "home", "data")
	p := prepare(t, filepath.Dir(data), "dev", "--data", data, "--json")
	if os.Geteuid() == 0 {
		becomeNobody(t, p, dir)
	} else if err := os.Mkdir(filepath.Dir(data), 0o700); err != nil {
		t.Fatal(err)
	}
	p.run()
	info := p.ready()
	if me(t, info)["balance"] != 1000.0 {
		t.Errorf("got %v", me(t, info))
	}
	if code := p.interrupt(); code != 0 {
		t.Errorf("Ctrl-C ended it with %d", code)
	}
}

// becomeNobody gives the process a home and a program that nobody may use.
func becomeNobody(t *testing.T, p *process, dir string) {
	t.Helper()
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err1 := strconv.Atoi(nobody.Uid)
	gid, err2 := strconv.Atoi(nobody.Gid)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	// The folders of tests are closed to others.
	for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	program, err := os.ReadFile(p.cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Path = filepath.Join(dir, "pictor")
	if err := os.WriteFile(p.cmd.Path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(p.cmd.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(p.cmd.Dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}
