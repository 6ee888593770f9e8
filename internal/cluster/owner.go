package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// owner is the user that the server runs as.
type owner struct {
	uid, gid uint32
	drop     bool // we are root and the server must not be
	sealed   bool // a folder on the way to the data lets only root through
}

// findOwner is the user who has the data already, else ourselves, or for root,
// as whom Postgres refuses to run, the user postgres or nobody.
func findOwner(dir string) (owner, error) {
	who := owner{uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}
	info, err := os.Stat(filepath.Join(dir, "data"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return owner{}, err
	}
	if err == nil {
		has := info.Sys().(*syscall.Stat_t)
		if who.uid != 0 && has.Uid != who.uid {
			return owner{}, fmt.Errorf("the data belongs to the user with id %d: run as that user or as root, or remove the folder", has.Uid)
		}
		if has.Uid != 0 {
			who.uid, who.gid = has.Uid, has.Gid
		}
	}
	if who.uid == 0 {
		if who.uid, who.gid, err = unprivileged(); err != nil {
			return owner{}, err
		}
	}
	who.drop = os.Geteuid() == 0
	who.sealed = who.drop && !reachable(dir, who)
	return who, nil
}

func unprivileged() (uid, gid uint32, err error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return uint32(uid), uint32(gid), nil
		}
	}
	return 0, 0, errors.New("as root Postgres does not run, and there is no user postgres or nobody to run it as")
}

// reachable says whether the owner may enter every folder down to dir.
func reachable(dir string, who owner) bool {
	for ; ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil {
			return false
		}
		has, mode := info.Sys().(*syscall.Stat_t), info.Mode().Perm()
		switch {
		case has.Uid == who.uid:
			mode >>= 6
		case has.Gid == who.gid:
			mode >>= 3
		}
		if mode&1 == 0 {
			return false
		}
		if dir == filepath.Dir(dir) {
			return true
		}
	}
}

// attributes start a process as the owner, in a process group of its own: a
// Ctrl-C in the terminal is for us, who stop the server last.
func attributes(who owner) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true}
	if who.drop {
		attr.Credential = &syscall.Credential{Uid: who.uid, Gid: who.gid}
	}
	if who.sealed {
		passSealedFolders(attr)
	}
	return attr
}

// makeFolder makes a folder that only the owner may enter.
func makeFolder(path string, who owner) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make a folder: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	has := info.Sys().(*syscall.Stat_t)
	// In a shared folder somebody else may have been there first.
	if !info.IsDir() || has.Uid != who.uid && has.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("%s is in the way and not ours", path)
	}
	if err := os.Chown(path, int(who.uid), int(who.gid)); err != nil && who.drop {
		return fmt.Errorf("give a folder to the user that runs Postgres: %w", err)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return fmt.Errorf("close a folder to others: %w", err)
	}
	return nil
}
