package graph_test

import (
	"math"
	"math/rand/v2"
)

// picture is something between a photograph and a test card: ramps, edges,
// texture and noise, in 0..1.
func picture(n, channels, h, w int) []float32 {
	random := rand.New(rand.NewPCG(uint64(h), uint64(w)))
	out := make([]float32, 0, n*channels*h*w)
	for c := range n * channels {
		for y := range h {
			for x := range w {
				v := 0.3 + 0.3*float64(x)/float64(w) + 0.1*math.Sin(float64(y*(c+2))/3)
				if dx, dy := x-w/2, y-h/2; dx*dx+dy*dy < w*h/9 {
					v = 0.9 - 0.1*float64(c%3)
				}
				if (x/7+y/5)%9 == 0 {
					v = 0.05
				}
				out = append(out, float32(max(0, min(1, v+0.03*random.Float64()))))
			}
		}
	}
	return out
}
