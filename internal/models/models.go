// Package models holds the networks: the shipped ones, embedded in the binary,
// the catalogue of foreign ones, and what a caller must know to feed them.
//
// It knows files, sizes and checksums, where foreign files are published and
// how they are downloaded, and nothing of engines or pictures. No file is used
// before its checksum is verified. MODELS.md beside this file tells how the
// shipped models were made and under which terms their training pictures came.
package models

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"pictor/internal/job"
)

//go:embed *.onnx
var files embed.FS

// Description is one model: its file, and how it is fed. Every model takes one
// tensor of RGB, channels first, and gives one.
type Description struct {
	Name string
	Task job.Task
	File string // its name, in the binary or in the folder of pulled models
	// Path is where a pulled model lies; empty for the shipped ones.
	Path string
	// SHA256 is the checksum of the file, in hex.
	SHA256 string

	// Side is the width and height of the square input in pixels, 0 for a
	// model that takes any size.
	Side int
	// Letterbox keeps the picture's aspect: it lies in the middle of the
	// square, and the rest is 0. Otherwise the picture is squashed to the square.
	Letterbox bool
	// Brightest divides the pixels by the brightest value of the picture, not
	// by 255: U2-Net was trained so.
	Brightest bool
	// Mean is subtracted from the pixels in 0..1, and Std divides the difference,
	// for red, green and blue.
	Mean, Std [3]float32
	// Mirrored asks the model for the mirrored picture as well, and takes the mean.
	Mirrored bool

	// Sigmoid turns the output into 0..1.
	Sigmoid bool
	// Stretch takes the least value of the output for background and the
	// greatest for subject.
	Stretch bool
	// Coarse says that the mask has fewer pixels than an edge needs: the edge is
	// found anew in the picture. Other masks are taken as they are.
	Coarse bool

	// Scale is how much larger than the input the output is.
	Scale int
	// Margin is how many pixels of the input, beyond a pixel, its output
	// depends on: tiles that overlap by it join without a seam.
	Margin int
	// Multiple is what both sides of the input must be a multiple of; 0 is 1.
	Multiple int

	// RuntimeOnly says that onnx-go lacks operators of the model.
	RuntimeOnly bool
	// Alone says that one run needs gigabytes of memory: there is one at a time,
	// on all threads.
	Alone bool

	// Origin says who made the model, and Licence under which terms.
	Origin, Licence string
	// URL is where the file is published, Size its length in bytes and MD5 the
	// publisher's checksum, where there is one. Witness says on whose word
	// SHA256 is what it is. All are empty for the shipped models.
	URL     string
	Size    int64
	MD5     string
	Witness string
}

// Shipped lists the embedded models: the default of each task, in the order of
// the tasks, and then the faster ones.
func Shipped() []Description {
	const (
		origin  = "trained from scratch for Pictor"
		licence = "as this project; MODELS.md of internal/models lists the terms of the training pictures"
	)
	asIs := [3]float32{1, 1, 1}
	return []Description{
		{
			Name: "remove-bg", Task: job.RemoveBG, File: "remove-bg.onnx",
			SHA256: "2fa9f6503d79d88d66d33101333938ef4de08c197160ff477e03e9ab5349d1a8",
			Side:   256, Std: asIs, Mirrored: true, Coarse: true, Scale: 1,
			Origin: origin, Licence: licence,
		},
		{
			Name: "upscale-2x", Task: job.Upscale2x, File: "upscale-2x.onnx",
			SHA256: "44fbad622aa4e4da49bd0957845a9c7b5cd3a34f8952242e56c5fc0a7ed0e4c1",
			Std:    asIs, Scale: 2, Margin: 13,
			Origin: origin, Licence: licence,
		},
		{
			Name: "upscale-4x", Task: job.Upscale4x, File: "upscale-4x.onnx",
			SHA256: "24cf5048ca2976cf7db76ba6d47081b4c886a77e728b8028a3ad5384e65f0ea0",
			Std:    asIs, Scale: 4, Margin: 12,
			Origin: origin, Licence: licence,
		},
		{
			Name: "upscale-2x-fast", Task: job.Upscale2x, File: "upscale-2x-fast.onnx",
			SHA256: "60317d25b8213962ded9b655dd84022589d3d8599a04b4e676746d67a9e9c792",
			Std:    asIs, Scale: 2, Margin: 9,
			Origin: origin, Licence: licence,
		},
		{
			Name: "upscale-4x-fast", Task: job.Upscale4x, File: "upscale-4x-fast.onnx",
			SHA256: "99a98af9795740e256a2c4766cac64577ebc75228448d40296520e4f6106380d",
			Std:    asIs, Scale: 4, Margin: 8,
			Origin: origin, Licence: licence,
		},
	}
}

// All lists the shipped models and then the foreign ones, whose files belong
// into the folder.
func All(folder string) []Description {
	all := Shipped()
	for _, d := range foreign() {
		d.Path = filepath.Join(folder, d.File)
		all = append(all, d)
	}
	return all
}

// Default lists the model of each task that is used where no other is chosen.
func Default() []Description { return Shipped()[:len(job.Tasks())] }

// For is the default model of a task.
func For(task job.Task) (Description, error) {
	of := Default()
	i := slices.IndexFunc(of, func(d Description) bool { return d.Task == task })
	if i < 0 {
		return Description{}, fmt.Errorf("no model is shipped for the task %q", task)
	}
	return of[i], nil
}

// Shipped says that the model is in the binary.
func (d Description) Shipped() bool { return d.URL == "" }

// Installed says that there is a file of the model; whether it is the right one
// is found out when it is read.
func (d Description) Installed() bool {
	if d.Shipped() {
		return true
	}
	info, err := os.Stat(d.Path)
	return err == nil && info.Mode().IsRegular()
}

// MissingError says that the file of a foreign model is not there.
type MissingError struct{ Name, Path string }

func (e *MissingError) Error() string {
	return fmt.Sprintf("the model %s is not in %s: run `pictor models pull %s`", e.Name, filepath.Dir(e.Path), e.Name)
}

// Bytes reads the model's file and verifies its checksum.
func (d Description) Bytes() ([]byte, error) {
	want, err := d.checksum()
	if err != nil {
		return nil, err
	}
	var b []byte
	if d.Shipped() {
		b, err = files.ReadFile(d.File)
	} else {
		b, err = os.ReadFile(d.Path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &MissingError{d.Name, d.Path}
	}
	if err != nil {
		return nil, fmt.Errorf("read model %s: %w", d.Name, err)
	}
	sum := sha256.Sum256(b)
	if got := hex.EncodeToString(sum[:]); got != want {
		return nil, d.mismatch(got, want)
	}
	return b, nil
}

func (d Description) mismatch(got, want string) error {
	if d.Shipped() {
		return fmt.Errorf("model %s has the checksum %s, want %s", d.Name, got, want)
	}
	return fmt.Errorf("the file %s has the SHA-256 %s, want %s: delete it and run `pictor models pull %s`; if it is an export of your own, write its checksum into %s",
		d.Path, got, want, d.Name, d.ownChecksum())
}

// ownChecksum is a file as sha256sum writes it. Whoever uses another export
// than that of the catalogue, says so by it.
func (d Description) ownChecksum() string { return d.Path + ".sha256" }

// Own says that the operator vouches for a file of another checksum than the
// catalogue's.
func (d Description) Own() bool {
	sum, err := d.checksum()
	return err == nil && sum != d.SHA256
}

// checksum is what the file must have: the operator's word before the
// catalogue's.
func (d Description) checksum() (string, error) {
	if d.Shipped() {
		return d.SHA256, nil
	}
	b, err := os.ReadFile(d.ownChecksum())
	if errors.Is(err, fs.ErrNotExist) {
		return d.SHA256, nil
	}
	if err != nil {
		return "", fmt.Errorf("read the checksum of model %s: %w", d.Name, err)
	}
	sum, _, _ := strings.Cut(strings.TrimSpace(string(b)), " ")
	if err := CheckSHA256(sum); err != nil {
		return "", fmt.Errorf("%s: %w", d.ownChecksum(), err)
	}
	return strings.ToLower(sum), nil
}

// CheckSHA256 refuses what is no SHA-256 in hex.
func CheckSHA256(sum string) error {
	if b, err := hex.DecodeString(sum); err != nil || len(b) != sha256.Size {
		return fmt.Errorf("%q is no SHA-256: want %d hex digits", sum, 2*sha256.Size)
	}
	return nil
}

// Verify reads every shipped model and compares its checksum.
func Verify() error {
	for _, d := range Shipped() {
		if _, err := d.Bytes(); err != nil {
			return err
		}
	}
	return nil
}
