package render

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"pictor/internal/onnx"
	"pictor/internal/vips"
)

const (
	tileHeight = 256
	stripBytes = 32 << 20 // of one row of tiles, enlarged
)

// tilePixels is how many pixels of the picture make a tile, without the margin.
// Larger tiles are hardly faster, smaller ones lose time on their margins. A
// run needs about 0.5 kB of memory for a pixel at 2x and 0.9 kB at 4x.
func tilePixels(scale int) int {
	if scale > 2 {
		return 160 * 256
	}
	return 256 * 256
}

// grid cuts a picture into tiles of one size, as equal as can be. The last ones
// are shifted inwards instead of being cut, so that the model always runs on
// the same shape.
type grid struct {
	columns, rows int
	w, h          int // of a tile
}

func newGrid(p *vips.Picture, m model) grid {
	tallest := stripBytes / (p.Width * p.Bands * m.Scale * m.Scale)
	rows := ceil(p.Height, min(tileHeight, max(tallest, 1)))
	h := ceil(p.Height, rows)
	columns := ceil(p.Width, tilePixels(m.Scale)/h)
	w := ceil(p.Width, columns)
	return grid{columns: ceil(p.Width, w), rows: ceil(p.Height, h), w: w, h: h}
}

func ceil(a, b int) int { return (a + b - 1) / b }

// enlarge writes the picture's enlargement, strip by strip.
func (r *Renderer) enlarge(ctx context.Context, m model, p *vips.Picture, g grid, out encoder, steps *steps) error {
	workers := make([]*tiler, min(r.threads, g.columns))
	for i := range workers {
		workers[i] = newTiler(m, p, g)
	}
	rowBytes := p.Width * m.Scale * p.Bands
	strip := make([]byte, rowBytes*g.h*m.Scale)
	for row := range g.rows {
		y := min(row*g.h, p.Height-g.h)
		steps.laps.begin(Model)
		if err := r.strip(ctx, workers, g.columns, y, strip, steps); err != nil {
			return err
		}
		done := row*g.h - y // rows of a last, shifted tile that are written already
		steps.laps.begin(Encode)
		if err := out.WriteRows(strip[done*m.Scale*rowBytes:]); err != nil {
			return err
		}
	}
	return nil
}

// strip enlarges one row of tiles. The first error stops it.
func (r *Renderer) strip(parent context.Context, workers []*tiler, columns, y int, strip []byte, steps *steps) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var next atomic.Int32
	var wg sync.WaitGroup
	for _, t := range workers {
		wg.Go(func() {
			for column := int(next.Add(1) - 1); column < columns; column = int(next.Add(1) - 1) {
				if err := t.enlarge(ctx, r, min(column*t.grid.w, t.picture.Width-t.grid.w), y, strip); err != nil {
					cancel(err)
					return
				}
				steps.add(1)
			}
		})
	}
	wg.Wait()
	if err := parent.Err(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// tiler enlarges tiles of one picture, one at a time.
type tiler struct {
	model   model
	picture *vips.Picture
	grid    grid
	in, out onnx.Tensor

	left, top int // margin of the tile that was read last
}

func newTiler(m model, p *vips.Picture, g grid) *tiler {
	multiple := max(m.Multiple, 1)
	w, h := ceil(g.w+2*m.Margin+multiple-1, multiple)*multiple, ceil(g.h+2*m.Margin+multiple-1, multiple)*multiple
	return &tiler{model: m, picture: p, grid: g, in: onnx.NewTensor(1, 3, h, w), out: onnx.NewTensor(1, 3, h*m.Scale, w*m.Scale)}
}

// enlarge makes the tile whose left upper pixel is x, y, and puts it into the
// strip, which begins at row y of the picture.
func (t *tiler) enlarge(ctx context.Context, r *Renderer, x, y int, strip []byte) error {
	bands := t.picture.Bands
	colour := []int{0, 0, 0}
	if bands >= 3 {
		colour = []int{0, 1, 2}
	}
	if err := t.enlargeBands(ctx, r, x, y, strip, colour); err != nil {
		return err
	}
	if !hasAlpha(t.picture) {
		return nil
	}
	alpha := bands - 1
	return t.enlargeBands(ctx, r, x, y, strip, []int{alpha, alpha, alpha})
}

// enlargeBands runs the model on three bands of the tile. A band that is given
// three times is one grey picture for the model.
func (t *tiler) enlargeBands(ctx context.Context, r *Renderer, x, y int, strip []byte, bands []int) error {
	grey := bands[0] == bands[1]
	t.read(x, y, bands)
	if grey && flat(t.in.Data) {
		// The inside of an opaque area, or of a transparent one.
		for i := range t.out.Data {
			t.out.Data[i] = t.in.Data[0]
		}
	} else if err := r.run(ctx, t.model, t.in, t.out); err != nil {
		return err
	}
	ok := true
	if grey {
		ok = t.writeGrey(x, strip, bands[0])
	} else {
		ok = t.writeColour(x, strip)
	}
	if !ok {
		return fmt.Errorf("model %s: %w", t.model.Name, errNoNumber)
	}
	return nil
}

// read fills the model's input with the tile and its margin. Beyond the
// picture's border its edge pixels are repeated, which the model needs: it was
// trained on the insides of pictures. A model that takes multiples sees every
// tile begin at one, counted from the picture's corner less the margin: whether
// a pixel is the first or the last of a group must not depend on the tile.
func (t *tiler) read(x, y int, bands []int) {
	p, margin := t.picture, t.model.Margin
	multiple := max(t.model.Multiple, 1)
	t.left, t.top = margin+x%multiple, margin+y%multiple
	h, w := t.in.Shape[2], t.in.Shape[3]
	left, right := max(t.left-x, 0), min(p.Width-x+t.left, w) // columns of the picture
	for c, band := range bands {
		out := t.in.Data[c*h*w : (c+1)*h*w]
		if c > 0 && band == bands[0] {
			copy(out, t.in.Data[:h*w])
			continue
		}
		for ty := range h {
			row := min(max(y+ty-t.top, 0), p.Height-1)
			line := out[ty*w : (ty+1)*w]
			px := (row*p.Width+x-t.left+left)*p.Bands + band
			for tx := left; tx < right; tx++ {
				line[tx] = float32(p.Pix[px]) * (1.0 / 255)
				px += p.Bands
			}
			for tx := range left {
				line[tx] = line[left]
			}
			for tx := right; tx < w; tx++ {
				line[tx] = line[right-1]
			}
		}
	}
}

// flat says that all values are the same.
func flat(values []float32) bool {
	for _, v := range values {
		if v != values[0] {
			return false
		}
	}
	return true
}

// lines calls write for every row of the tile: the three output channels, and
// the strip's pixels that they go to. The columns that a tile shifted inwards
// shares with the one before it are left to that one: another goroutine writes
// them at the same time.
func (t *tiler) lines(x int, strip []byte, write func(r, g, b []float32, pix []byte) bool) bool {
	scale, bands := t.model.Scale, t.picture.Bands
	h, w := t.out.Shape[2], t.out.Shape[3]
	shared := 0
	if over := x % t.grid.w; over != 0 {
		shared = t.grid.w - over
	}
	width := (t.grid.w - shared) * scale
	ok := true
	for ty := range t.grid.h * scale {
		from := (ty+t.top*scale)*w + (t.left+shared)*scale
		r := t.out.Data[from:][:width]
		g := t.out.Data[h*w+from:][:width]
		b := t.out.Data[2*h*w+from:][:width]
		pix := strip[(ty*t.picture.Width+x+shared)*scale*bands:][:width*bands]
		ok = write(r, g, b, pix) && ok
	}
	return ok
}

func (t *tiler) writeColour(x int, strip []byte) bool {
	bands := t.picture.Bands
	return t.lines(x, strip, func(r, g, b []float32, pix []byte) bool {
		g, b = g[:len(r)], b[:len(r)]
		numbers := true
		for i := range r {
			px := pix[i*bands:][:3:3]
			red, green, blue := r[i]*255+0.5, g[i]*255+0.5, b[i]*255+0.5
			if inRange(red) && inRange(green) && inRange(blue) {
				px[0], px[1], px[2] = byte(int32(red)), byte(int32(green)), byte(int32(blue))
			} else {
				px[0], px[1], px[2] = clamped(red, &numbers), clamped(green, &numbers), clamped(blue, &numbers)
			}
		}
		return numbers
	})
}

func (t *tiler) writeGrey(x int, strip []byte, band int) bool {
	bands := t.picture.Bands
	return t.lines(x, strip, func(r, g, b []float32, pix []byte) bool {
		numbers := true
		for i := range r {
			pix[i*bands+band] = clamped((r[i]+g[i]+b[i])*(255.0/3)+0.5, &numbers)
		}
		return numbers
	})
}

// inRange says that v is a byte when cut to a whole number. The bits of
// positive floats are in the order of the floats, and those of negative ones
// and of NaN lie above them: one comparison finds all that needs care.
func inRange(v float32) bool { return math.Float32bits(v) < math.Float32bits(256) }

// clamped is the byte nearest to v, of which a half too much was given for
// rounding. It clears numbers for what no model that works can give.
func clamped(v float32, numbers *bool) byte {
	switch {
	case inRange(v):
		return byte(int32(v))
	case !(math.Abs(float64(v)) < 1e8): // NaN too
		*numbers = false
		return 0
	case v > 0:
		return 255
	default:
		return 0
	}
}
