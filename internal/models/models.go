// Package models holds the networks: the shipped ones, embedded in the binary,
// and what a caller must know to feed them.
//
// It knows files, sizes and checksums, and nothing of engines or pictures. The
// README beside this file tells how the shipped models were made and under
// which terms their training pictures came.
package models

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"

	"pictor/internal/job"
)

//go:embed *.onnx
var files embed.FS

// Description is one model and how it is fed.
//
// Every shipped model takes one tensor of RGB in 0..1 and gives one tensor.
type Description struct {
	Name string
	Task job.Task
	File string
	// SHA256 is the checksum of the file, in hex.
	SHA256 string

	// Side is the width and height of the square input in pixels, 0 for a
	// model that takes any size. A picture is resized to the square without
	// keeping its aspect.
	Side int
	// Scale is how much larger than the input the output is.
	Scale int
	// Margin is how many pixels of the input, beyond a pixel, its output
	// depends on: tiles that overlap by it join without a seam.
	Margin int

	// Origin says who made the model, and Licence under which terms.
	Origin, Licence string
}

// Shipped lists the embedded models: one per task, in the order of the tasks.
func Shipped() []Description {
	const (
		origin  = "trained from scratch for Pictor"
		licence = "as this project; README.md of internal/models lists the terms of the training pictures"
	)
	return []Description{
		{
			Name: "remove-bg", Task: job.RemoveBG, File: "remove-bg.onnx",
			SHA256: "e1e4131af592a7aecaaa09e5fbb53ad7ad61738f1d747c9cfab058b972530fcf",
			Side:   256, Scale: 1,
			Origin: origin, Licence: licence,
		},
		{
			Name: "upscale-2x", Task: job.Upscale2x, File: "upscale-2x.onnx",
			SHA256: "324c12b2ea3bb4e285b710ad19c8c2d13c04c2517ac9753f4628d96581718c9a",
			Scale:  2, Margin: 8,
			Origin: origin, Licence: licence,
		},
		{
			Name: "upscale-4x", Task: job.Upscale4x, File: "upscale-4x.onnx",
			SHA256: "aa995c498f07e0ae86832d4bef8c8d1550bc3ab4a2b2af583e0f49e2574e719a",
			Scale:  4, Margin: 8,
			Origin: origin, Licence: licence,
		},
	}
}

// For is the shipped model of a task.
func For(task job.Task) (Description, error) {
	shipped := Shipped()
	i := slices.IndexFunc(shipped, func(d Description) bool { return d.Task == task })
	if i < 0 {
		return Description{}, fmt.Errorf("no model is shipped for the task %q", task)
	}
	return shipped[i], nil
}

// Bytes reads the model's file and verifies its checksum.
func (d Description) Bytes() ([]byte, error) {
	b, err := files.ReadFile(d.File)
	if err != nil {
		return nil, fmt.Errorf("read model %s: %w", d.Name, err)
	}
	sum := sha256.Sum256(b)
	if got := hex.EncodeToString(sum[:]); got != d.SHA256 {
		return nil, fmt.Errorf("model %s has the checksum %s, want %s", d.Name, got, d.SHA256)
	}
	return b, nil
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
