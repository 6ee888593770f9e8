package app

import (
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"os"

	"golang.org/x/image/draw"

	"pictor/internal/vips"
)

const (
	sheetSide = 900 // longest side of one of the two pictures
	sheetGap  = 12
	square    = 12 // of the checkerboard
)

// writeSheet puts a picture and what became of it side by side. A larger result
// is shown by its middle, pixel for pixel, beside the same detail of the
// picture enlarged by plain interpolation; transparency shows a checkerboard.
func writeSheet(path string, before, after *vips.Picture) error {
	left, right := toImage(before), toImage(after)
	detail := middle(right.Bounds())
	if factor := float64(after.Width) / float64(before.Width); factor > 1 {
		enlarged := image.NewNRGBA(right.Bounds())
		draw.CatmullRom.Scale(enlarged, enlarged.Bounds(), left, left.Bounds(), draw.Src, nil)
		left = enlarged
	}
	w, h := detail.Dx(), detail.Dy()
	sheet := image.NewNRGBA(image.Rect(0, 0, 2*w+sheetGap, h))
	checkerboard(sheet)
	draw.Draw(sheet, image.Rect(0, 0, w, h), left, detail.Min, draw.Over)
	draw.Draw(sheet, image.Rect(w, 0, w+sheetGap, h), image.White, image.Point{}, draw.Src)
	draw.Draw(sheet, image.Rect(w+sheetGap, 0, 2*w+sheetGap, h), right, detail.Min, draw.Over)

	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write a sheet: %w", err)
	}
	defer f.Close()
	if err := jpeg.Encode(f, sheet, &jpeg.Options{Quality: 90}); err != nil {
		return fmt.Errorf("write a sheet: %w", err)
	}
	return f.Close()
}

// middle is the part of a picture that a sheet has room for.
func middle(all image.Rectangle) image.Rectangle {
	w, h := min(all.Dx(), sheetSide), min(all.Dy(), sheetSide)
	corner := image.Pt((all.Dx()-w)/2, (all.Dy()-h)/2)
	return image.Rectangle{Min: corner, Max: corner.Add(image.Pt(w, h))}
}

func checkerboard(on *image.NRGBA) {
	light, dark := color.NRGBA{235, 235, 235, 255}, color.NRGBA{200, 200, 200, 255}
	for y := range on.Rect.Dy() {
		for x := range on.Rect.Dx() {
			c := light
			if (x/square+y/square)%2 == 1 {
				c = dark
			}
			on.SetNRGBA(x, y, c)
		}
	}
}

func toImage(p *vips.Picture) *image.NRGBA {
	out := image.NewNRGBA(image.Rect(0, 0, p.Width, p.Height))
	for i := range p.Width * p.Height {
		from := p.Pix[i*p.Bands : (i+1)*p.Bands]
		to := out.Pix[i*4 : i*4+4]
		to[3] = 255
		switch p.Bands {
		case 1, 2:
			to[0], to[1], to[2] = from[0], from[0], from[0]
		default:
			copy(to, from[:3])
		}
		if p.Bands == 2 || p.Bands == 4 {
			to[3] = from[p.Bands-1]
		}
	}
	return out
}
