package render_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"pictor/internal/render"
)

func TestClean_drops_small_parts_and_fills_small_holes(t *testing.T) {
	t.Parallel()
	const w, h = 100, 100
	p := make([]float32, w*h)
	paint := func(x0, y0, x1, y1 int, v float32) {
		for y := y0; y < y1; y++ {
			for x := x0; x < x1; x++ {
				p[y*w+x] = v
			}
		}
	}
	paint(10, 10, 60, 60, 0.9) // the subject: 2500 pixels
	paint(20, 20, 23, 24, 0.2) // a hole of 12 pixels, fewer than 15
	paint(30, 30, 34, 34, 0.2) // a hole of 16 pixels
	paint(70, 70, 85, 85, 0.8) // a part of 225 pixels, more than 8 %
	paint(90, 10, 99, 20, 0.7) // a part of 90 pixels
	paint(60, 60, 61, 61, 0.9) // touches the subject at its corner
	inside := render.Clean(p, w)

	for _, test := range []struct {
		what string
		x, y int
		want bool
		p    float32
	}{
		{"subject", 15, 15, true, 0.9},
		{"small hole", 21, 21, true, 0.95},
		{"large hole", 31, 31, false, 0.2},
		{"large part", 75, 75, true, 0.8},
		{"small part", 92, 12, false, 0},
		{"corner", 60, 60, true, 0.9},
		{"outside", 5, 5, false, 0},
	} {
		if i := test.y*w + test.x; inside[i] != test.want || p[i] != test.p {
			t.Errorf("%s: inside %v, p %.2f; want %v, %.2f", test.what, inside[i], p[i], test.want, test.p)
		}
	}
}

// A part that winds is one part, however its rows meet.
func TestClean_follows_a_spiral(t *testing.T) {
	t.Parallel()
	rows := []string{
		"##########",
		".........#",
		"#######.##",
		"#.....#.#.",
		"#.###.#..#",
		"#.#...#.#.",
		"#.#####.#.",
		"#.......#.",
		"#########.",
		"..........",
	}
	var p []float32
	for _, row := range rows {
		for _, c := range row {
			v := float32(0)
			if c == '#' {
				v = 1
			}
			p = append(p, v)
		}
	}
	inside := render.Clean(append([]float32(nil), p...), 10)
	for i, v := range p {
		if inside[i] != (v == 1) {
			t.Fatalf("pixel %d, %d changed", i%10, i/10)
		}
	}
}

func TestBand_is_what_lies_within_a_distance_of_the_contour(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, size := range [][2]int{{40, 31}, {1, 50}, {50, 1}, {1, 1}} {
		for _, width := range []float64{2, 3.7, 9} {
			w, h := size[0], size[1]
			inside := make([]bool, w*h)
			cx, cy, radius := r.Float64()*float64(w), r.Float64()*float64(h), 12*r.Float64()
			for i := range inside {
				inside[i] = math.Hypot(float64(i%w)-cx, float64(i/w)-cy) < radius || r.IntN(60) == 0
			}
			got := render.Band(inside, w, width)
			for i := range inside {
				nearest := math.Inf(1)
				for j := range inside {
					if inside[j] != inside[i] {
						nearest = min(nearest, math.Hypot(float64(i%w-j%w), float64(i/w-j/w)))
					}
				}
				want := render.Background
				if inside[i] {
					want = render.Foreground
				}
				if nearest <= width {
					want = render.Edge
				}
				if got[i] != want {
					t.Fatalf("%v, width %.1f, pixel %d: zone %d, want %d (distance %.2f)", size, width, i, got[i], want, nearest)
				}
			}
		}
	}
}

func TestShrink_weighs_every_pixel_by_the_area_it_covers(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	p := newPicture(97, 61, 3, func(x, y int) []byte { return []byte{byte(r.IntN(256)), byte(r.IntN(256)), byte(r.IntN(256))} })
	for _, size := range [][2]int{{97, 61}, {96, 60}, {50, 7}, {13, 61}, {1, 1}} {
		w, h := size[0], size[1]
		got := render.Shrink(p, w, h)
		for c := range 3 {
			band := make([]float32, 97*61)
			for i := range band {
				band[i] = float32(p.Pix[3*i+c])
			}
			for i, want := range render.Resize(band, 97, w, h) {
				if math.Abs(float64(got.Pix[3*i+c])-float64(want)) > 1 {
					t.Fatalf("%v: band %d of pixel %d is %d, want %.2f", size, c, i, got.Pix[3*i+c], want)
				}
			}
		}
	}
}

func TestResize_keeps_the_mean_and_what_is_flat(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(5, 6))
	noise, flat := make([]float32, 37*23), make([]float32, 37*23)
	var sum float64
	for i := range noise {
		noise[i], flat[i] = r.Float32(), 0.25
		sum += float64(noise[i]) / float64(len(noise))
	}
	for _, size := range [][2]int{{37, 23}, {10, 9}, {5, 40}, {1, 1}, {300, 200}} {
		var mean float64
		small := render.Resize(noise, 37, size[0], size[1])
		for _, v := range small {
			mean += float64(v) / float64(len(small))
		}
		if math.Abs(mean-sum) > 0.03 {
			t.Errorf("%v: mean %.4f, want %.4f", size, mean, sum)
		}
		for _, v := range render.Resize(flat, 37, size[0], size[1]) {
			if math.Abs(float64(v)-0.25) > 1e-6 {
				t.Fatalf("%v: flat 0.25 became %v", size, v)
			}
		}
	}
}

func TestBlur_is_the_mean_of_a_reflected_window(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	mirror := func(i, n int) int {
		for i < 0 || i >= n {
			if i < 0 {
				i = -1 - i
			} else {
				i = 2*n - 1 - i
			}
		}
		return i
	}
	for _, size := range [][2]int{{9, 7}, {1, 5}, {6, 1}, {1, 1}} {
		w, h := size[0], size[1]
		v := make([]float32, w*h)
		for i := range v {
			v[i] = r.Float32()
		}
		for _, radius := range []int{1, 4, 20} {
			for i, got := range render.Blur(v, w, radius) {
				var want float64
				for dy := -radius; dy <= radius; dy++ {
					for dx := -radius; dx <= radius; dx++ {
						want += float64(v[mirror(i/w+dy, h)*w+mirror(i%w+dx, w)])
					}
				}
				want /= float64((2*radius + 1) * (2*radius + 1))
				if math.Abs(float64(got)-want) > 1e-5 {
					t.Fatalf("%v, radius %d, pixel %d: %v, want %v", size, radius, i, got, want)
				}
			}
		}
	}
}

func TestBleed_fills_hidden_colour_from_what_is_visible_nearby(t *testing.T) {
	t.Parallel()
	p := newPicture(9, 1, 4, func(x, y int) []byte {
		switch x {
		case 0:
			return []byte{200, 0, 0, 255}
		case 8:
			return []byte{0, 0, 200, 1}
		default:
			return []byte{0, 0, 0, 0}
		}
	})
	render.Bleed(p)
	if diff := cmp.Diff([]byte{200, 0, 0, 255, 200, 0, 0, 0}, p.Pix[:8]); diff != "" {
		t.Error(diff)
	}
	for x := range 9 {
		if px := p.Pix[4*x : 4*x+4]; px[0]|px[2] == 0 {
			t.Errorf("pixel %d stayed black: %v", x, px)
		}
	}
}
