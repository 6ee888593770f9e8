package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
)

// longestSocket is what fits into a socket address, with its closing zero:
// 104 bytes on macOS, 108 on Linux.
const longestSocket = 103

// socketFolder makes the folder of the socket: in dir, or under a short name in
// the temporary folder when the path would be too long.
func socketFolder(dir string, who owner) (string, error) {
	folder := filepath.Join(dir, "run")
	if len(folder)+len("/.s.PGSQL."+port) > longestSocket {
		sum := sha256.Sum256([]byte(dir))
		folder = filepath.Join(shortTemp(), "pictor-"+hex.EncodeToString(sum[:6]))
	}
	return folder, makeFolder(folder, who)
}

// shortTemp is the temporary folder, unless its own name is too long.
func shortTemp() string {
	if dir := os.TempDir(); len(dir) < 60 {
		return dir
	}
	return "/tmp"
}

func removeSockets(dir, folder string) {
	if filepath.Dir(folder) != dir {
		_ = os.RemoveAll(folder)
	}
}
