package onnx

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// ErrNoLibrary says that ONNX Runtime is not installed.
var ErrNoLibrary = errors.New("ONNX Runtime's shared library is not installed: `go tool task setup` installs it, PICTOR_ORT_LIB names one elsewhere, PICTOR_ENGINE=onnx-go does without")

// FindLibrary is the path of ONNX Runtime's shared library: PICTOR_ORT_LIB
// when it is set, else the first one in the places where `go tool task setup`
// and packages put it, else ErrNoLibrary.
func FindLibrary() (string, error) {
	if path := os.Getenv("PICTOR_ORT_LIB"); path != "" {
		return path, nil
	}
	for _, folder := range libraryFolders() {
		for _, name := range libraryNames() {
			path := filepath.Join(folder, name)
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
				return path, nil
			}
		}
	}
	return "", ErrNoLibrary
}

// libraryFolders lists the folders to search, the ones of our own set-up
// first: a package's library may be too old for the API that we call.
func libraryFolders() []string {
	folders := []string{"/usr/local/lib/pictor"}
	data := os.Getenv("XDG_DATA_HOME")
	if home, err := os.UserHomeDir(); data == "" && err == nil {
		data = filepath.Join(home, ".local", "share")
	}
	if data != "" {
		folders = append(folders, filepath.Join(data, "pictor"))
	}
	folders = append(folders, "/usr/lib", "/usr/local/lib")
	if multiarch, ok := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]; ok {
		folders = append(folders, fmt.Sprintf("/usr/lib/%s-linux-gnu", multiarch))
	}
	return folders
}

func libraryNames() []string {
	if runtime.GOOS == "darwin" {
		return []string{"libonnxruntime.1.dylib", "libonnxruntime.dylib"}
	}
	return []string{"libonnxruntime.so.1", "libonnxruntime.so"}
}
