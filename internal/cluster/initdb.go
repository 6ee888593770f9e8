package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// initialise makes the cluster beside its place and renames it, so that an
// interrupted start leaves no half of one.
func initialise(ctx context.Context, bin, data string, who owner, o Options, log *os.File) error {
	fresh := data + ".new"
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("clear an unfinished cluster: %w", err)
	}
	if err := makeFolder(fresh, who); err != nil {
		return err
	}
	// Trust, because the folder of the socket lets only one user in. Checksums,
	// because the ledger is in there.
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "initdb"), "--pgdata", fresh, "--username", superuser,
		"--auth-local", "trust", "--auth-host", "reject", "--encoding", "UTF8", "--locale", "C", "--data-checksums")
	if o.Unsafe {
		cmd.Args = append(cmd.Args, "--no-sync")
	}
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = "/", environment(), log, log
	cmd.SysProcAttr = attributes(who)
	dieWithParent(cmd.SysProcAttr)
	runtime.LockOSThread() // see run
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("initdb: %w:\n%s", err, tail(log.Name()))
	}
	if err := os.Rename(fresh, data); err != nil {
		return fmt.Errorf("put the new cluster in its place: %w", err)
	}
	return nil
}
