// Package tempfile opens temporary files without a name: nothing is left of one
// when it is closed or its process is killed.
package tempfile

import "os"

// Unnamed opens one in a folder, empty for the system's. Its name, while it has
// one, begins with the prefix.
func Unnamed(dir, prefix string) (*os.File, error) {
	f, err := os.CreateTemp(dir, prefix)
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
