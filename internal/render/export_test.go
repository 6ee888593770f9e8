package render

import "pictor/internal/vips"

// What the tests look at besides Render.

var (
	OutputType = outputType
	Bleed      = bleed
	Band       = func(inside []bool, w int, width float64) []zone { return band(inside, w, width) }
	Shrink     = func(p *vips.Picture, w, h int) *vips.Picture { return shrink(p, w, h, 0, 2) }
)

const (
	Background = background
	Edge       = edge
	Foreground = foreground
)

func Clean(p []float32, w int) []bool { return clean(plane{w, len(p) / w, p}) }

func Blur(v []float32, w, r int) []float32 { return plane{w, len(v) / w, v}.blur(r).v }

func Resize(v []float32, w, toW, toH int) []float32 {
	return plane{w, len(v) / w, v}.resize(toW, toH).v
}
