package app

import (
	"fmt"
	"strings"

	"pictor/internal/job"
	"pictor/internal/models"
)

// fit tells how a picture becomes the model's input.
func fit(d models.Description) string {
	switch {
	case d.Side == 0 && d.Multiple > 1:
		return fmt.Sprintf("tiles of a multiple of %d, margin %d", d.Multiple, d.Margin)
	case d.Side == 0:
		return fmt.Sprintf("tiles, margin %d", d.Margin)
	case d.Letterbox:
		return fmt.Sprintf("letterboxed to %d", d.Side)
	default:
		return fmt.Sprintf("squashed to %d", d.Side)
	}
}

// normalisation tells what is done to a pixel x of 0..255.
func normalisation(d models.Description) string {
	text := "x/255"
	if d.Brightest {
		text = "x/brightest"
	}
	if d.Mean != [3]float32{} {
		text += " - " + three(d.Mean)
	}
	if d.Std != [3]float32{1, 1, 1} {
		text = "(" + text + ") / " + three(d.Std)
	}
	return text
}

func three(v [3]float32) string {
	if v[0] == v[1] && v[1] == v[2] {
		return fmt.Sprint(v[0])
	}
	return fmt.Sprintf("[%v %v %v]", v[0], v[1], v[2])
}

// output tells what is done to the model's answer.
func output(d models.Description) string {
	if d.Task != job.RemoveBG {
		return "clamped to 0..1"
	}
	var steps []string
	for _, step := range []struct {
		done bool
		name string
	}{
		{d.Sigmoid, "sigmoid"},
		{d.Mirrored, "mean with the mirrored picture's"},
		{d.Stretch, "min-max"},
		{d.Coarse, "edge refined"},
	} {
		if step.done {
			steps = append(steps, step.name)
		}
	}
	if steps == nil {
		return "as it is"
	}
	return strings.Join(steps, ", ")
}

// ModelsTable is the catalogue of foreign models as a table in Markdown.
func ModelsTable() string {
	var b strings.Builder
	b.WriteString("| Model | Task | Picture | Values | Answer | Engine | MB | Licence | By |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, d := range models.All("") {
		if d.Shipped() {
			continue
		}
		engine := "both"
		if d.RuntimeOnly {
			engine = "ONNX Runtime"
		}
		fmt.Fprintf(&b, "| [`%s`](%s) | `%s` | %s | %s | %s | %s | %.1f | %s | %s |\n",
			d.Name, d.URL, d.Task, fit(d), normalisation(d), output(d), engine, float64(d.Size)/1e6, d.Licence, d.Origin)
	}
	return b.String()
}
