package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNoServer says that the machine has no Postgres server that would do.
var ErrNoServer = errors.New("no Postgres server is installed; `go tool task setup` installs one")

// findBinaries finds the folder of initdb and postgres: the newest version, or
// the one that made the data when there is some.
func findBinaries(data string) (string, error) {
	want := 0
	if made, err := os.ReadFile(filepath.Join(data, "PG_VERSION")); err == nil {
		if want, err = strconv.Atoi(strings.TrimSpace(string(made))); err != nil {
			return "", fmt.Errorf("read the version of %s: %w", data, err)
		}
	}
	type found struct {
		dir   string
		major int
	}
	var all []found
	for _, dir := range binaryFolders() {
		if major, ok := version(dir); ok {
			all = append(all, found{dir, major})
		}
	}
	if len(all) == 0 {
		return "", ErrNoServer
	}
	slices.SortStableFunc(all, func(a, b found) int { return cmp.Compare(b.major, a.major) })
	if want == 0 {
		return all[0].dir, nil
	}
	for _, f := range all {
		if f.major == want {
			return f.dir, nil
		}
	}
	return "", fmt.Errorf("%s was made by Postgres %d, and the newest server found is %d: install %d, or remove the folder and its data",
		data, want, all[0].major, want)
}

// binaryFolders lists where servers are commonly installed.
func binaryFolders() []string {
	var folders []string
	if path, err := exec.LookPath("postgres"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			folders = append(folders, filepath.Dir(real))
		}
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",         // Debian, Ubuntu
		"/usr/pgsql-*/bin",                  // Red Hat
		"/opt/homebrew/opt/postgresql*/bin", // macOS
		"/usr/local/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/local/pgsql/bin",
		"/usr/bin",
	} {
		matches, _ := filepath.Glob(pattern) // fails on a bad pattern only
		folders = append(folders, matches...)
	}
	return folders
}

// version is the major version of the server in dir, if initdb is there too.
func version(dir string) (major int, ok bool) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return 0, false
	}
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return 0, false
	}
	// postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
	fields := strings.Fields(string(out))
	if len(fields) < 3 {
		return 0, false
	}
	digits, _, _ := strings.Cut(fields[2], ".")
	major, err = strconv.Atoi(strings.TrimRight(digits, "abcdefghijklmnopqrstuvwxyz"))
	return major, err == nil
}
