// Command eval renders whole folders through the worker's code, so that what is
// measured is what users get:
//
//	eval FROM TO
//
// The pictures of FROM/remove-bg, FROM/upscale-2x and FROM/upscale-4x are
// rendered by every shipped model of the task, into folders of TO that are named
// after the models. FROM holds PNG only, which comes out as PNG: nothing but the
// model lies between the two.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"pictor/internal/job"
	"pictor/internal/models"
	"pictor/internal/onnx"
	"pictor/internal/render"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: eval FROM TO")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "eval:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, from, to string) error {
	engine, err := onnx.Open(onnx.Config{Engine: onnx.Runtime})
	if err != nil {
		return err
	}
	defer engine.Close()
	rendered := 0
	for _, d := range models.Shipped() {
		n, err := renderFolder(ctx, engine, d, filepath.Join(from, string(d.Task)), filepath.Join(to, d.Name))
		if err != nil {
			return err
		}
		rendered += n
	}
	if rendered == 0 {
		return fmt.Errorf("no pictures in %s: make them with `python -m evaluate prepare`", from)
	}
	fmt.Println(rendered, "pictures rendered")
	return nil
}

// renderFolder says how many pictures it rendered by the model.
func renderFolder(ctx context.Context, engine onnx.Engine, d models.Description, from, to string) (int, error) {
	renderer, err := render.New(render.Config{Engine: engine, Models: []models.Description{d}})
	if err != nil {
		return 0, err
	}
	defer renderer.Close()
	files, err := filepath.Glob(filepath.Join(from, "*.png"))
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return 0, err
	}
	for _, file := range files {
		if err := renderFile(ctx, renderer, d.Task, file, filepath.Join(to, filepath.Base(file))); err != nil {
			return 0, fmt.Errorf("%s of %s: %w", d.Name, file, err)
		}
	}
	return len(files), nil
}

func renderFile(ctx context.Context, r *render.Renderer, task job.Task, from, to string) error {
	in, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if _, err := r.Render(ctx, task, in, &out, nil); err != nil {
		return err
	}
	return os.WriteFile(to, out.Bytes(), 0o644)
}
