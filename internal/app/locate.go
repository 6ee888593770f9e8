package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// DefaultData is the folder of a dev stack that names no other.
const DefaultData = "pictor-data"

// DevInfo is dev.json: what a client needs to talk to a running dev stack.
type DevInfo struct {
	BaseURL     string `json:"base_url"`
	ResultsURL  string `json:"results_url"`
	DatabaseURL string `json:"database_url"`
	NATSURL     string `json:"nats_url"`
	Account     string `json:"account"`
	APIKey      string `json:"api_key"`
}

// Names of files and folders in a dev stack's folder.
const (
	devInfo  = "dev.json"  // there while the stack is ready
	devLast  = "last.json" // dev.json of the last run: its key and addresses are used again
	devLock  = "dev.lock"  // held while the stack's process lives, however that ends
	devBlobs = "blobs"
	devQueue = "nats"
	devFiles = "tmp"
)

// errNotRunning says that no dev stack runs on a folder.
var errNotRunning = errors.New("no dev stack runs there")

// Locate is the dev stack that runs on a folder.
func Locate(dir string) (DevInfo, error) {
	var info DevInfo
	running, err := locked(filepath.Join(dir, devLock))
	if err == nil && !running {
		err = errNotRunning
	}
	if err != nil {
		return info, fmt.Errorf("%s: %w", dir, err)
	}
	b, err := os.ReadFile(filepath.Join(dir, devInfo))
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.New("its dev stack is not ready yet")
	}
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	if err != nil {
		return DevInfo{}, fmt.Errorf("%s: %w", dir, err)
	}
	return info, nil
}

// here finds the dev stack that a command without any address means: the one on
// ./pictor-data, else the one that was started last by this user.
func here() (dir string, info DevInfo, found bool) {
	candidates := []string{DefaultData}
	if path, err := lastStack(); err == nil {
		if b, err := os.ReadFile(path); err == nil {
			candidates = append(candidates, strings.TrimSpace(string(b)))
		}
	}
	for _, dir := range candidates {
		if info, err := Locate(dir); err == nil {
			return dir, info, true
		}
	}
	return "", DevInfo{}, false
}

// Connection is Stores, and where to look for a dev stack that has them.
type Connection struct {
	Data string `placeholder:"DIR" type:"path" help:"Folder of a running dev stack to talk to. It wins over the URLs."`
	Stores
}

// Check resolves the connection and names every mistake in it and in the other
// parts of a command's configuration.
func (c *Connection) Check(parts ...interface{ Mistakes() error }) error {
	_, err := c.resolve()
	mistakes := []error{err}
	for _, p := range parts {
		mistakes = append(mistakes, p.Mistakes())
		if p, ok := p.(interface{ mistakesWith(Stores) error }); ok {
			mistakes = append(mistakes, p.mistakesWith(c.Stores))
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return &UsageError{err}
	}
	return nil
}

// resolve fills in what was not given: from the dev stack on Data, else, where
// no database is named, from one that runs here, else by the defaults.
func (c *Connection) resolve() (DevInfo, error) {
	dir, info := c.Data, DevInfo{}
	switch {
	case c.Data != "":
		var err error
		if info, err = Locate(c.Data); err != nil {
			return DevInfo{}, err
		}
		c.Stores = Stores{}
	case c.DatabaseURL == "":
		dir, info, _ = here()
	}
	if info.DatabaseURL != "" {
		blobs, err := blobURL(dir)
		if err != nil {
			return DevInfo{}, err
		}
		c.DatabaseURL, c.NATSURL, c.BlobURL = info.DatabaseURL, or(c.NATSURL, info.NATSURL), or(c.BlobURL, blobs)
	}
	c.Stores = c.Stores.withDefaults()
	return info, c.Stores.Mistakes()
}

func (c Stores) withDefaults() Stores {
	c.NATSURL = or(c.NATSURL, "nats://127.0.0.1:4222")
	c.BlobURL = or(c.BlobURL, "file:///var/lib/pictor/blobs")
	return c
}

func blobURL(dir string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, devBlobs))
	if err != nil {
		return "", fmt.Errorf("find %s: %w", dir, err)
	}
	return (&url.URL{Scheme: "file", Path: path}).String(), nil
}

func or(given, otherwise string) string {
	if given == "" {
		return otherwise
	}
	return given
}

// lastStack is the file that names the folder of the dev stack that this user
// started last.
func lastStack() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if state == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "pictor", "dev"), nil
}

// lock takes the lock of a folder for as long as the file stays open. The
// system releases it however the process ends.
func lock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	// A look by Locate holds the lock for a moment: one refusal is no proof.
	for range 20 {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("another dev stack runs on %s: stop it, or choose another folder with --data", filepath.Dir(path))
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// locked says whether a process holds the lock.
func locked(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
