package cluster_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	_ "github.com/lib/pq"

	"pictor/internal/cluster"
)

// ownerOf makes the test binary a process that runs a cluster until it is
// killed: the one that dies without a word.
const ownerOf = "PICTOR_TEST_CLUSTER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerOf); dir != "" {
		if _, err := cluster.Start(context.Background(), dir, slog.New(slog.DiscardHandler)); err != nil {
			fmt.Println("failed:", err)
			os.Exit(1)
		}
		fmt.Println("ready")
		select {}
	}
	code := m.Run()
	if dir, _ := once(); dir != "" {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

func start(t *testing.T, dir string) *cluster.Cluster {
	t.Helper()
	return startWith(t, cluster.Options{Unsafe: true}, dir)
}

func startWith(t *testing.T, o cluster.Options, dir string) *cluster.Cluster {
	t.Helper()
	c, err := o.Start(t.Context(), dir, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	return c
}

// made is the folder of a stopped cluster, for tests that are not about making
// one.
func made(t *testing.T) string {
	t.Helper()
	first, err := once()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if out, err := exec.Command("cp", "-a", first+"/.", dir).CombinedOutput(); err != nil {
		t.Fatalf("copy a cluster: %v: %s", err, out)
	}
	return dir
}

// once makes that folder; TestMain removes it.
var once = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "pictor-cluster-test-*")
	if err != nil {
		return "", err
	}
	c, err := cluster.Options{Unsafe: true}.Start(context.Background(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return dir, err
	}
	if err := c.Stop(context.Background()); err != nil {
		return dir, err
	}
	return dir, os.Chmod(dir, 0o711)
})

func stop(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx, done := context.WithTimeout(context.Background(), 20*time.Second)
	defer done()
	if err := c.Stop(ctx); err != nil {
		t.Error(err)
	}
	<-c.Done()
}

// do runs a statement and returns what it says.
func do(t *testing.T, c *cluster.Cluster, statement string) string {
	t.Helper()
	db, err := sql.Open("postgres", c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var s sql.NullString
	if err := db.QueryRowContext(t.Context(), statement).Scan(&s); err != nil && !errors.Is(err, sql.ErrNoRows) {
		t.Fatalf("%s: %v", statement, err)
	}
	return s.String
}

// postmaster is the server's process id.
func postmaster(t *testing.T, dir string) int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.SplitN(string(b), "\n", 2)[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// gone waits until the process has ended.
func gone(t *testing.T, pid int) {
	t.Helper()
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			tick.Stop()
			return
		}
		select {
		case <-tick.C:
		case <-t.Context().Done():
			t.Fatalf("process %d does not end", pid)
		}
	}
}

func TestStart_keeps_its_data(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := start(t, dir)
	do(t, c, `create table t as select 1`)
	for range 2 { // the second time it is there already
		if err := c.CreateDatabase(t.Context(), "pictor"); err != nil {
			t.Fatal(err)
		}
	}
	stop(t, c)
	stop(t, c) // stopping twice is as good as once

	c = start(t, dir)
	if got := do(t, c, `select count(*) from t`); got != "1" {
		t.Errorf("%s rows after a restart", got)
	}
	if got := do(t, c, `show data_checksums`); got != "on" {
		t.Errorf("data checksums are %s", got)
	}
}

func TestStart_is_durable_unless_told_otherwise(t *testing.T) {
	t.Parallel()
	c, err := cluster.Start(t.Context(), t.TempDir(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, c)
	for _, setting := range []string{"fsync", "synchronous_commit", "full_page_writes"} {
		if got := do(t, c, `show `+setting); got != "on" {
			t.Errorf("%s is %s", setting, got)
		}
	}
}

func TestStart_refuses_a_folder_whose_server_runs(t *testing.T) {
	t.Parallel()
	dir := made(t)
	start(t, dir)
	if _, err := cluster.Start(t.Context(), dir, slog.New(slog.DiscardHandler)); !errors.Is(err, cluster.ErrInUse) {
		t.Errorf("want ErrInUse, got %v", err)
	}
}

func TestStart_lets_nobody_else_in(t *testing.T) {
	t.Parallel()
	dir := made(t)
	c := start(t, dir)
	for _, folder := range []string{"data", "run"} {
		info, err := os.Stat(filepath.Join(dir, folder))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o700 {
			t.Errorf("%s has mode %o", folder, info.Mode().Perm())
		}
	}
	if got := do(t, c, `show listen_addresses`); got != "" {
		t.Errorf("it listens on %s", got)
	}
	group, err := syscall.Getpgid(postmaster(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if group == syscall.Getpgrp() {
		t.Error("a Ctrl-C in the terminal reaches the server before its clients")
	}
}

// A socket's path is short by decree of the kernel; a data folder's is not.
func TestStart_works_in_a_folder_with_a_long_name(t *testing.T) {
	t.Parallel()
	c := start(t, filepath.Join(t.TempDir(), strings.Repeat("long/", 20), "enough"))
	do(t, c, `select 1`)
}

// The home of root is closed to the user that the server must run as.
func TestStart_works_in_a_folder_that_is_closed_to_others(t *testing.T) {
	t.Parallel()
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	c := start(t, filepath.Join(closed, "data"))
	do(t, c, `select 1`)
}

func TestStart_ends_a_fresh_start_that_was_cut_off(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	half := filepath.Join(dir, "data.new")
	if err := os.Mkdir(half, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(half, "PG_VERSION"), []byte("15\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, start(t, dir), `select 1`)
}

func TestStart_names_the_version_that_made_the_data(t *testing.T) {
	t.Parallel()
	dir := made(t)
	if err := os.WriteFile(filepath.Join(dir, "data", "PG_VERSION"), []byte("8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := cluster.Start(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "was made by Postgres 8") {
		t.Errorf("got %v", err)
	}
}

func TestStart_shows_the_log_of_a_server_that_does_not_start(t *testing.T) {
	t.Parallel()
	dir := made(t)
	if err := os.WriteFile(filepath.Join(dir, "data", "postgresql.conf"), []byte("nonsense = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := cluster.Start(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("got %v", err)
	}
}

// kill -9 of the process that runs the server: the server ends with it, and
// what was committed is there afterwards.
func TestStart_after_its_process_was_killed(t *testing.T) {
	t.Parallel()
	dir := made(t)
	owner := exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), ownerOf+"="+dir)
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the other process says %q", line)
	}
	server := postmaster(t, dir)
	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait()
	gone(t, server)
	do(t, start(t, dir), `select 1`)
}

func TestStart_after_its_server_was_killed(t *testing.T) {
	t.Parallel()
	dir := made(t)
	c := startWith(t, cluster.Options{}, dir)
	do(t, c, `create table t as select 1`)
	if err := syscall.Kill(postmaster(t, dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	stop(t, c)
	if got := do(t, start(t, dir), `select count(*) from t`); got != "1" {
		t.Errorf("%s rows after a crash", got)
	}
}

// A server that survived its process, as on systems whose kernel does not end
// it: started here by hand with the command line of a real one.
func TestStart_stops_a_server_that_was_left_behind(t *testing.T) {
	t.Parallel()
	dir := made(t)
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for the hand below
		t.Fatal(err)
	}
	c := start(t, dir)
	proc := fmt.Sprintf("/proc/%d/", postmaster(t, dir))
	line, err := os.ReadFile(proc + "cmdline")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "data"))
	if err != nil {
		t.Fatal(err)
	}
	user := info.Sys().(*syscall.Stat_t)
	do(t, c, `create table t as select 1`)
	stop(t, c)
	args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
	left := exec.Command(args[0], args[1:]...)
	left.Dir, left.Env, left.Stderr = "/", []string{"LC_ALL=C"}, t.Output()
	if os.Geteuid() == 0 {
		left.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user.Uid, Gid: user.Gid}}
	}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- left.Wait() }()
	for {
		b, _ := os.ReadFile(filepath.Join(dir, "data", "postmaster.pid"))
		if strings.Contains(string(b), "ready") {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the server that was to be left behind ended: %v", err)
		default:
		}
	}

	c = start(t, dir)

	<-ended
	if got := do(t, c, `select count(*) from t`); got != "1" {
		t.Errorf("%s rows", got)
	}
}

// After a crash of the machine the process id in the pid file may be anybody's:
// here it is this test's own. Postgres would refuse to start beside it.
func TestStart_leaves_an_innocent_process_alone(t *testing.T) {
	t.Parallel()
	dir := made(t)
	stale := fmt.Sprintf("%d\n%s\n1\n5432\n\n\n0 0\nready   \n", os.Getpid(), filepath.Join(dir, "data"))
	if err := os.WriteFile(filepath.Join(dir, "data", "postmaster.pid"), []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, start(t, dir), `select 1`)
}

func TestStop_does_not_wait_for_its_clients(t *testing.T) {
	t.Parallel()
	c := start(t, made(t))
	db, err := sql.Open("postgres", c.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	asked := make(chan error, 1)
	go func() {
		_, err := db.Exec(`select pg_sleep(600)`)
		asked <- err
	}()
	stop(t, c)
	if err := <-asked; err == nil {
		t.Error("the statement ended well")
	}
}
