package blob

import (
	"context"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gocloud.dev/blob"
)

// halfWritten ends the names of the files that fileblob has not renamed yet.
const halfWritten = ".tmp"

// folder does what fileblob leaves out: it syncs, lists while files come and
// go, and removes empty directories and what crashes left.
type folder struct{ root string }

func newFolder(u *url.URL) (*folder, error) {
	path := u.Path
	if u.Host == "." {
		path = strings.TrimPrefix(path, "/") // as fileblob reads file://./relative
	}
	root, err := filepath.Abs(filepath.FromSlash(path))
	return &folder{root}, err
}

func (f *folder) path(key string) string { return filepath.Join(f.root, filepath.FromSlash(key)) }

// syncOnClose returns a func that brings what was written to the disk. It must
// be called before the writer is closed, that is before the rename: a rename
// that reaches the disk before the bytes do would publish an empty object.
func (f *folder) syncOnClose(opt *blob.WriterOptions, key string) func() error {
	var file *os.File
	opt.BeforeWrite = func(as func(any) bool) error {
		if !as(&file) {
			return fmt.Errorf("write %s: fileblob gave no file", key)
		}
		return nil
	}
	return func() error { return file.Sync() }
}

// syncDirs makes the rename of the key, and the directories made for it,
// survive a power failure.
func (f *folder) syncDirs(key string) error {
	for dir := filepath.Dir(f.path(key)); ; dir = filepath.Dir(dir) {
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		err = d.Sync()
		_ = d.Close()
		if err != nil {
			return err
		}
		if dir == f.root || len(dir) <= len(f.root) {
			return nil
		}
	}
}

// prune removes the directories of a deleted key that are empty now, except
// the one of the first level, which every Put would have to make again.
func (f *folder) prune(key string) {
	for dir := filepath.Dir(filepath.FromSlash(key)); strings.Contains(dir, string(filepath.Separator)); dir = filepath.Dir(dir) {
		if os.Remove(filepath.Join(f.root, dir)) != nil {
			return // not empty
		}
	}
}

// list walks the folder itself, because fileblob's listing fails when a file
// disappears under it, which temporary files do all the time, and begins anew
// for every page.
func (f *folder) list(ctx context.Context, prefix string, fn func(key string, modTime time.Time, size int64) error) error {
	return f.walk(ctx, prefix, func(key string, info fs.FileInfo) error {
		if strings.HasSuffix(key, halfWritten) {
			return nil
		}
		return fn(key, info.ModTime(), info.Size())
	})
}

func (f *folder) removeHalfWritten(ctx context.Context, before time.Time) (removed int, err error) {
	err = f.walk(ctx, "", func(key string, info fs.FileInfo) error {
		if !strings.HasSuffix(key, halfWritten) || !info.ModTime().Before(before) {
			return nil
		}
		if err := os.Remove(f.path(key)); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("remove %s: %w", key, err)
		}
		f.prune(key)
		removed++
		return nil
	})
	return removed, err
}

func (f *folder) walk(ctx context.Context, prefix string, fn func(key string, info fs.FileInfo) error) error {
	start := f.root
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		start = f.path(prefix[:i])
	}
	return filepath.WalkDir(start, func(path string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		if entry.IsDir() {
			return nil
		}
		key, err := filepath.Rel(f.root, path)
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		if key = filepath.ToSlash(key); !strings.HasPrefix(key, prefix) {
			return nil
		}
		info, err := entry.Info()
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		return fn(key, info)
	})
}
