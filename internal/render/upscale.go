package render

import (
	"context"
	"io"
	"runtime/debug"

	"pictor/internal/job"
	"pictor/internal/vips"
)

// largePicture is how many bytes of pixels make it worth a garbage collection
// to have what one part of the work leaves behind out of memory before the next
// one begins.
const largePicture = 16 << 20

func isLarge(p *vips.Picture) bool { return len(p.Pix) > largePicture }

// upscale enlarges the picture by the model's factor, in the type it came in
// where that type can hold it.
//
// The model runs on tiles. A row of tiles becomes a strip of the result, which
// goes to the encoder before the next row is begun.
func (r *Renderer) upscale(ctx context.Context, m model, in []byte, out io.Writer, steps *steps) (Result, error) {
	header, err := vips.ReadHeader(in)
	if err != nil {
		return Result{}, failure(err)
	}
	w, h := header.Width*m.Scale, header.Height*m.Scale
	tiles := newGrid(&vips.Picture{Width: header.Width, Height: header.Height, Bands: header.Bands()}, m).tiles()
	decoding := max(1, tiles*decodingShare/100)
	encoding := encodingShare(outputType(header.Type, w, h, header.Alpha), tiles)
	steps.of((decoding+tiles+encoding)*tileSteps + 1) // the one is for the last byte

	decoded := steps.part(decoding * tileSteps)
	picture, err := r.decode(ctx, in, decoded)
	if err != nil {
		return Result{}, err
	}
	decoded(100)
	large := isLarge(picture)
	if large {
		defer debug.FreeOSMemory() // or the next picture would come on top of this one
		debug.FreeOSMemory()       // the file, and what decoding left behind
	}
	picture = dropColour(picture)
	bleed(picture)

	result := Result{Type: outputType(header.Type, w, h, hasAlpha(picture)), Width: w, Height: h}
	encoder, err := r.encoder(result, picture.Bands, header.Lossless, out)
	if err != nil {
		return Result{}, err
	}
	defer encoder.discard()

	grid := newGrid(picture, m) // perhaps of fewer bands than the header told
	if err := r.enlarge(ctx, m, picture, grid, encoder, steps); err != nil {
		return Result{}, err
	}
	steps.laps.begin(Encode)
	if large {
		debug.FreeOSMemory() // the picture, the tiles and their strip
	}
	encoded := steps.part(encoding * tileSteps)
	err = encoder.Close(ctx, func(percent int) { encoded(min(percent, 99)) }) // the last is for the result as a whole
	if err != nil {
		return Result{}, err
	}
	steps.finish()
	return result, nil
}

// tileSteps is how many pieces of work a tile counts for: enough to divide
// what is left after the last one.
const tileSteps = 100

// decodingShare is how many percent of the work on the tiles decoding is worth.
const decodingShare = 2

// encodingShare is how many tiles the work of the encoder after the last tile
// is worth.
func encodingShare(imageType string, tiles int) int {
	switch imageType {
	case job.PNG: // encoded strip by strip
		return 0
	case job.JPEG:
		return tiles/20 + 1
	default:
		return tiles/3 + 1
	}
}

func hasAlpha(p *vips.Picture) bool { return p.Bands == 2 || p.Bands == 4 }

// dropColour makes a grey picture of one that is stored in colour but shows
// none, so that the model cannot give it any.
func dropColour(p *vips.Picture) *vips.Picture {
	if p.Bands < 3 {
		return p
	}
	for i := 0; i < len(p.Pix); i += p.Bands {
		if px := p.Pix[i : i+3]; px[0] != px[1] || px[1] != px[2] {
			return p
		}
	}
	grey := &vips.Picture{Width: p.Width, Height: p.Height, Bands: p.Bands - 2}
	grey.Pix = make([]byte, p.Width*p.Height*grey.Bands)
	for from, to := 0, 0; from < len(p.Pix); from, to = from+p.Bands, to+grey.Bands {
		copy(grey.Pix[to:to+grey.Bands], p.Pix[from+2:])
	}
	return grey
}
