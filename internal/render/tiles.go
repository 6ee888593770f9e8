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

// stripBytes is how much memory one row of tiles may take, enlarged.
const stripBytes = 32 << 20

// tileHeight is how many rows of the picture make a tile, without the margin.
// A row of tiles is held in memory at its enlarged size, so the tiles are low
// where much is enlarged; the larger the margin, the more a low tile would waste
// on it.
func tileHeight(m model) int { return min(max(48*m.Margin/m.Scale, 96), 256) }

// tilePixels is how many pixels of the picture make a tile, without the margin.
// Larger tiles are hardly faster, smaller ones lose time on their margins. A
// run of a default model needs 0.8 kB of memory for a pixel at 2x, 1 kB at 4x,
// and what it gives 0.05 and 0.2 kB more.
func tilePixels(m model) int {
	switch {
	case m.cropped && m.Scale < 4:
		return 192 * 256
	case m.cropped:
		return 72 * 256
	case m.Scale < 4:
		return 256 * 256
	default:
		return 160 * 256
	}
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
	rows := ceil(p.Height, min(tileHeight(m), max(tallest, 1)))
	h := ceil(p.Height, rows)
	columns := ceil(p.Width, tilePixels(m)/h)
	w := ceil(p.Width, columns)
	return grid{columns: ceil(p.Width, w), rows: ceil(p.Height, h), w: w, h: h}
}

func (g grid) tiles() int { return g.columns * g.rows }

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
				steps.add(tileSteps)
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
	t := &tiler{model: m, picture: p, grid: g, in: onnx.NewTensor(1, 3, h, w)}
	if m.cropped {
		h, w = h-2*m.Margin, w-2*m.Margin
	}
	t.out = onnx.NewTensor(1, 3*m.block*m.block, h*m.Scale/m.block, w*m.Scale/m.block)
	return t
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

// line is a row of the model's output, one slice for each channel, and where in
// the strip it goes: every step bytes of pix a pixel.
type line struct {
	r, g, b []float32
	pix     []byte
	step    int
}

// lines calls write for every row of the tile, or for every part of it where
// the model leaves pixels in blocks. The columns that a tile shifted inwards
// shares with the one before it are left to that one: another goroutine writes
// them at the same time.
func (t *tiler) lines(x int, strip []byte, write func(line) bool) bool {
	scale, bands, block := t.model.Scale, t.picture.Bands, t.model.block
	h, w := t.out.Shape[2], t.out.Shape[3]
	shared := 0
	if over := x % t.grid.w; over != 0 {
		shared = t.grid.w - over
	}
	width := (t.grid.w - shared) * scale
	left, top := t.left*scale, t.top*scale
	if t.model.cropped {
		left, top = left-t.model.Margin*scale, top-t.model.Margin*scale
	}
	ok := true
	for ty := range t.grid.h * scale {
		pix := strip[(ty*t.picture.Width+x+shared)*scale*bands:][:width*bands]
		for part := range block {
			channel := func(c int) []float32 {
				plane := (c*block+(ty+top)%block)*block + part
				from := (plane*h+(ty+top)/block)*w + (left+shared*scale)/block
				return t.out.Data[from:][:width/block]
			}
			ok = write(line{channel(0), channel(1), channel(2), pix[part*bands:], block * bands}) && ok
		}
	}
	return ok
}

func (t *tiler) writeColour(x int, strip []byte) bool { return t.lines(x, strip, line.writeColour) }

func (l line) writeColour() bool {
	r, g, b, pix := l.r, l.g[:len(l.r)], l.b[:len(l.r)], l.pix
	numbers := true
	at, check := 0, float32(0)
	for i := range r {
		red, green, blue := r[i]*255+0.5, g[i]*255+0.5, b[i]*255+0.5
		check += red + green + blue // NaN stays NaN; converted, it may be anything
		px := pix[at:][:3:3]
		if ir, ig, ib := int32(red), int32(green), int32(blue); uint32(ir|ig|ib) < 256 {
			px[0], px[1], px[2] = byte(ir), byte(ig), byte(ib)
		} else {
			px[0], px[1], px[2] = clamped(red, &numbers), clamped(green, &numbers), clamped(blue, &numbers)
		}
		at += l.step
	}
	return numbers && check == check
}

func (t *tiler) writeGrey(x int, strip []byte, band int) bool {
	return t.lines(x, strip, func(l line) bool {
		numbers := true
		for i := range l.r {
			l.pix[i*l.step+band] = clamped((l.r[i]+l.g[i]+l.b[i])*(255.0/3)+0.5, &numbers)
		}
		return numbers
	})
}

// clamped is the byte nearest to v, of which a half too much was given for
// rounding. It clears numbers for what no model that works can give.
func clamped(v float32, numbers *bool) byte {
	switch {
	case v >= 0 && v < 256:
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
