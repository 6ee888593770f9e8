package blob_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/blob"
)

// child tells this test binary to play a process that is about to have bad
// luck, on the folder in folderOfChild.
const (
	child         = "PICTOR_TEST_BLOB_CHILD"
	folderOfChild = "PICTOR_TEST_BLOB_FOLDER"
)

func TestMain(m *testing.M) {
	switch os.Getenv(child) {
	case "":
		flag.Parse()
		if *given == "" {
			forgetClouds()
		}
		os.Exit(m.Run())
	case "stops in a put":
		stopInPut()
	case "fills the disk":
		fillDisk()
	}
	os.Exit(3)
}

func TestFolder_holds_no_object_of_a_process_killed_in_a_put(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := open(t, "file://"+dir)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"=stops in a put", folderOfChild+"="+dir)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || line != "half\n" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed

	absent(t, s, "out/job/1")
	if diff := cmp.Diff([]string(nil), keys(t, s, "")); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(1, len(files(t, dir))); diff != "" {
		t.Fatalf("the killed process left files: %s", diff)
	}

	if n, err := s.RemoveHalfWritten(t.Context(), time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("removed %d files, %v: that one may still be written", n, err)
	}
	if n, err := s.RemoveHalfWritten(t.Context(), time.Now().Add(time.Minute)); n != 1 || err != nil {
		t.Errorf("removed %d files, %v; want 1", n, err)
	}
	if left := files(t, dir); left != nil {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(filepath.Join(dir, "out/job")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the empty directory of the job is still there: %v", err)
	}
	put(t, s, "out/job/1", []byte("second try"))
}

func stopInPut() {
	s, err := blob.Open(context.Background(), "file://"+os.Getenv(folderOfChild))
	if err != nil {
		panic(err)
	}
	stop := onRead(func() {
		_, _ = os.Stdout.WriteString("half\n")
		select {}
	})
	// A process that only sleeps is a deadlock to the runtime: the signal
	// handler keeps it alive.
	signal.Notify(make(chan os.Signal, 1))
	err = s.Put(context.Background(), "out/job/1", "image/png", io.MultiReader(bytes.NewReader(picture(3<<20)), stop))
	panic(err)
}

func TestFolder_gives_an_error_and_no_object_when_the_disk_takes_no_more(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), child+"=fills the disk", folderOfChild+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := string(out); !strings.Contains(got, "store in/a: ") || !strings.Contains(got, "file too large") {
		t.Errorf("Put said %q", got)
	}
	if left := files(t, dir); left != nil {
		t.Errorf("left: %v", left)
	}
}

// fillDisk meets a full disk: a limit on the size of files refuses a write in
// the middle, as ENOSPC does.
func fillDisk() {
	signal.Ignore(syscall.SIGXFSZ)
	limit := syscall.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		panic(err)
	}
	s, err := blob.Open(context.Background(), "file://"+os.Getenv(folderOfChild))
	if err != nil {
		panic(err)
	}
	err = s.Put(context.Background(), "in/a", "image/png", bytes.NewReader(picture(3<<20)))
	if err == nil {
		panic("the put succeeded")
	}
	_, _ = os.Stdout.WriteString(err.Error())
	os.Exit(0)
}

func TestFolder_lists_while_files_come_and_go(t *testing.T) {
	t.Parallel()
	// fileblob's own listing failed with "no such file or directory" when a
	// temporary file was renamed between its two looks at it.
	dir := t.TempDir()
	s := open(t, "file://"+dir)
	for _, key := range []string{"in/a", "in/z"} {
		put(t, s, key, []byte("stays"))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for _, name := range []string{"in/k.1", "in/l.1", "in/m.1"} {
		path := filepath.Join(dir, name)
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Error(err)
				}
				if err := os.Remove(path); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 500 {
		stayed := 0
		for _, key := range keys(t, s, "in/") {
			if key == "in/a" || key == "in/z" {
				stayed++
			}
		}
		if stayed != 2 {
			t.Errorf("%d of the 2 objects that stay were listed", stayed)
		}
	}
	cancel()
	wg.Wait()
}

func TestFolder_is_for_its_owner_and_keeps_objects_over_a_restart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "a", "b")
	first := open(t, "file://"+dir)
	put(t, first, "out/job/1", picture(1000))
	etag := mustOpen(t, first, "out/job/1").ETag
	for _, path := range []string{dir, filepath.Join(dir, "out"), filepath.Join(dir, "out/job")} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(fs.FileMode(0o700), info.Mode().Perm()); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	if diff := cmp.Diff(etag, mustOpen(t, open(t, "file://"+dir), "out/job/1").ETag); diff != "" {
		t.Error(diff)
	}
}

func TestFolder_says_that_it_cannot_be_used(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := blob.Open(t.Context(), "file://"+file); err == nil {
		_ = s.Close()
		t.Error("a file was taken for a folder")
	}

	dir := filepath.Join(t.TempDir(), "gone")
	s := open(t, "file://"+dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err == nil {
		t.Error("the check found a store where its folder was replaced")
	}
}

// files lists every file below dir, whatever its name.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
