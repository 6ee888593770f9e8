package render

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	"pictor/internal/job"
	"pictor/internal/models"
	"pictor/internal/vips"
)

const (
	// checkSide is the side of the picture that Check works on.
	checkSide = 48
	// nearColour is how far the mean colour of an enlargement may lie from that
	// of its picture, out of 255. Models that work stay below 3.
	nearColour = 16
	// apart is how much more of the subject than of the background must be
	// kept, out of 255. Models that work keep nearly all and nearly nothing.
	apart = 128
)

// Check renders a small picture by every model and looks at the pixels that
// come out: a model that loads may still give nothing of use, on a GPU with
// broken memory or under a library of another version.
func (r *Renderer) Check(ctx context.Context) error {
	picture, file, err := checkPicture()
	if err != nil {
		return fmt.Errorf("make the picture for the self-test: %w", err)
	}
	for task := range r.models {
		if err := r.checkTask(ctx, task, picture, file); err != nil {
			return fmt.Errorf("self-test of %s: %w", task, err)
		}
	}
	return nil
}

func (r *Renderer) checkTask(ctx context.Context, task job.Task, picture *vips.Picture, file []byte) error {
	var out bytes.Buffer
	result, err := r.Render(ctx, task, file, &out, nil)
	if err != nil {
		return err
	}
	made, err := vips.Decode(out.Bytes())
	if err != nil {
		return err
	}
	scale := r.models[task].Scale
	if task == job.RemoveBG {
		scale = 1
	}
	if want := checkSide * scale; result.Width != want || made.Width != want || made.Height != want {
		return fmt.Errorf("the result has %d x %d pixels, want %d x %d", made.Width, made.Height, want, want)
	}
	if task == job.RemoveBG {
		// Others may look for people alone, and rightly see none.
		if inside, outside := kept(made); shipped(r.models[task].Name) && inside-outside < apart {
			return fmt.Errorf("of the subject %.0f of 255 is kept, and of the background %.0f", inside, outside)
		}
		return nil
	}
	for c := range 3 {
		if got, want := mean(made, c), mean(picture, c); math.Abs(got-want) > nearColour {
			return fmt.Errorf("the mean of band %d is %.0f, want about %.0f", c, got, want)
		}
	}
	return nil
}

func shipped(name string) bool {
	return slices.ContainsFunc(models.Shipped(), func(d models.Description) bool { return d.Name == name })
}

// checkPicture is a bright disc on a dark ground, as pixels and as a PNG.
func checkPicture() (*vips.Picture, []byte, error) {
	p := &vips.Picture{Width: checkSide, Height: checkSide, Bands: 3, Pix: make([]byte, checkSide*checkSide*3)}
	for i := range checkSide * checkSide {
		colour := [3]byte{20, 60, 30}
		if inDisc(i, checkSide, 0.3) {
			colour = [3]byte{240, 180, 160}
		}
		copy(p.Pix[3*i:], colour[:])
	}
	var file bytes.Buffer
	w, err := vips.NewPNGWriter(&file, p.Width, p.Height, p.Bands, vips.PNGOptions{})
	if err == nil {
		err = w.WriteRows(p.Pix)
	}
	if err == nil {
		err = w.Close()
	}
	return p, file.Bytes(), err
}

// inDisc says whether a pixel lies within the share of the side around the middle.
func inDisc(i, side int, share float64) bool {
	middle := float64(side-1) / 2
	return math.Hypot(float64(i%side)-middle, float64(i/side)-middle) < share*float64(side)
}

// kept is the mean alpha well inside the disc, and well outside of it.
func kept(p *vips.Picture) (inside, outside float64) {
	var in, out int
	for i := range p.Width * p.Height {
		alpha := float64(p.Pix[i*p.Bands+p.Bands-1])
		switch {
		case inDisc(i, p.Width, 0.25):
			inside, in = inside+alpha, in+1
		case !inDisc(i, p.Width, 0.4):
			outside, out = outside+alpha, out+1
		}
	}
	return inside / float64(in), outside / float64(out)
}

func mean(p *vips.Picture, band int) float64 {
	sum := 0
	for i := band; i < len(p.Pix); i += p.Bands {
		sum += int(p.Pix[i])
	}
	return float64(sum) / float64(p.Width*p.Height)
}
