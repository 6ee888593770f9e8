package models

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Source is where a model is pulled from, and how.
type Source struct {
	// URL of the file; empty for the catalogue's.
	URL string
	// SHA256 of the file, where it is another than the catalogue's: the file is
	// then taken on the operator's word.
	SHA256 string
	// Progress, which may be nil, is called with the bytes that are there and
	// the bytes of the whole file, which is 0 while unknown.
	Progress func(done, whole int64)
	// Stall is how long nothing may come before the connection counts as dead;
	// 0 is a minute.
	Stall time.Duration
}

// Pull downloads the model into its place and says whether that was necessary.
//
// What has come is kept in a file .part beside it: after a broken connection,
// Ctrl-C or a full disk, the next Pull goes on from there. The file appears
// under its name only when it is whole and its checksum is right.
func (d Description) Pull(ctx context.Context, from Source) (pulled bool, err error) {
	if d.Shipped() {
		return false, fmt.Errorf("the model %s is inside the binary", d.Name)
	}
	own := from.SHA256 != "" && !strings.EqualFold(from.SHA256, d.SHA256)
	if own {
		if err := CheckSHA256(from.SHA256); err != nil {
			return false, err
		}
		// Its length is the operator's affair, too.
		d.SHA256, d.MD5, d.Size = strings.ToLower(from.SHA256), "", 0
	}
	if from.URL == "" {
		from.URL = d.URL
	}
	if from.Stall <= 0 {
		from.Stall = time.Minute
	}
	folder := filepath.Dir(d.Path)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return false, fmt.Errorf("make the folder of models: %w", err)
	}
	if there, err := d.isThere(); there || err != nil {
		return false, err
	}
	part, err := openPart(d.Path + ".part")
	if err != nil {
		return false, err
	}
	defer part.Close()
	t := &transfer{Source: from, model: d, part: part, client: newClient()}
	if err := t.run(ctx); err != nil {
		if n, e := t.length(); n == 0 && e == nil {
			_ = os.Remove(part.Name())
		}
		return false, err
	}
	return true, d.install(part, own)
}

// isThere says that the file is in place already, with the checksum that is
// asked for.
func (d Description) isThere() (bool, error) {
	f, err := os.Open(d.Path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the model %s: %w", d.Name, err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return false, fmt.Errorf("read the model %s: %w", d.Name, err)
	}
	return hex.EncodeToString(sum.Sum(nil)) == d.SHA256, nil
}

// openPart opens the unfinished file. Only one process may write to it.
func openPart(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the unfinished file: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	locked, statErr := f.Stat()
	named, _ := os.Stat(path)
	// Whoever waited for the lock may hold the file that has just been put into
	// its place.
	if err != nil || statErr != nil || !os.SameFile(locked, named) {
		f.Close()
		return nil, fmt.Errorf("another process is downloading to %s", path)
	}
	return f, nil
}

// WrongFileError says that what was downloaded is not the model.
type WrongFileError struct {
	Model, URL string
	// Whole is the length of the file, and Size that of the catalogue, 0 when it
	// does not say.
	Whole, Size int64
	// Kind is SHA-256 or MD5, Got what was computed of it.
	Kind, Got, Want string
	// Published says that the file has the publisher's MD5 all the same.
	Published bool
}

func (e *WrongFileError) Error() string {
	if e.Size != 0 && e.Whole != e.Size {
		return fmt.Sprintf("%s has %d bytes, but %s has %d: it is another file", e.URL, e.Whole, e.Model, e.Size)
	}
	message := fmt.Sprintf("%s gave a file with the %s %s, but %s has %s: what came was deleted", e.URL, e.Kind, e.Got, e.Model, e.Want)
	if e.Published {
		message += "; it has the MD5 that the publisher states, so the catalogue may be wrong: --sha256 takes it on your word"
	}
	return message
}

// verify compares the whole part with the checksums.
func (t *transfer) verify() error {
	if _, err := t.part.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read what was downloaded: %w", err)
	}
	sha, md := sha256.New(), md5.New()
	n, err := io.Copy(io.MultiWriter(sha, md), t.part)
	if err != nil {
		return fmt.Errorf("read what was downloaded: %w", err)
	}
	wrong := &WrongFileError{Model: t.model.Name, URL: redacted(t.URL), Whole: n, Size: t.model.Size}
	published := t.model.MD5 == "" || hex.EncodeToString(md.Sum(nil)) == t.model.MD5
	if got := hex.EncodeToString(sha.Sum(nil)); got != t.model.SHA256 {
		wrong.Kind, wrong.Got, wrong.Want = "SHA-256", got, t.model.SHA256
		wrong.Published = published && t.model.MD5 != ""
		return wrong
	}
	if !published {
		wrong.Kind, wrong.Got, wrong.Want = "MD5", hex.EncodeToString(md.Sum(nil)), t.model.MD5
		return wrong
	}
	return nil
}

// install gives the verified part its name. The data are on the disk before
// the name is, and the operator's checksum before both: a power cut leaves
// either no file or the right one.
func (d Description) install(part *os.File, own bool) error {
	if err := part.Sync(); err != nil {
		return d.full(err)
	}
	if own {
		line := fmt.Sprintf("%s  %s\n", d.SHA256, d.File)
		if err := os.WriteFile(d.ownChecksum(), []byte(line), 0o644); err != nil {
			return fmt.Errorf("note the checksum of model %s: %w", d.Name, err)
		}
	}
	if err := os.Rename(part.Name(), d.Path); err != nil {
		return fmt.Errorf("put the model %s into its place: %w", d.Name, err)
	}
	if !own {
		if err := os.Remove(d.ownChecksum()); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("forget the checksum of another %s: %w", d.Name, err)
		}
	}
	_ = os.Remove(markOf(part))
	folder, err := os.Open(filepath.Dir(d.Path))
	if err != nil {
		return fmt.Errorf("put the model %s into its place: %w", d.Name, err)
	}
	defer folder.Close()
	return folder.Sync()
}

// full says it plainly when there is no room.
func (d Description) full(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		size := ""
		if d.Size > 0 {
			size = fmt.Sprintf(", which has %d bytes,", d.Size)
		}
		return fmt.Errorf("no room for the model %s%s in %s: make room, then pull it again to go on", d.Name, size, filepath.Dir(d.Path))
	}
	return fmt.Errorf("write the model %s: %w", d.Name, err)
}

// newClient goes through the proxy that the environment names.
func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout = time.Minute
	return &http.Client{Transport: transport}
}
