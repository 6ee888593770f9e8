package render

// Shares of what cleaning takes away (notes of the second training, part 3).
const (
	smallestPart = 0.08   // of the largest part of the subject: smaller ones are dropped
	largestHole  = 0.0015 // of the picture: smaller holes in the subject are filled
)

// clean decides which pixels are subject: p above a half, without small parts
// beside the subject and small holes in it. It changes p to agree.
func clean(p plane) []bool {
	inside := make([]bool, len(p.v))
	for i, v := range p.v {
		inside[i] = v > 0.5
	}

	parts := findParts(inside, p.w, true, true)
	largest := 0
	for i := range parts {
		largest = max(largest, parts[i].area)
	}
	for _, r := range parts {
		if float64(parts[r.root].area) < smallestPart*float64(largest) {
			r.fill(inside, p, false, 0)
		}
	}

	holes := findParts(inside, p.w, false, false)
	for _, r := range holes {
		if float64(holes[r.root].area) < largestHole*float64(len(p.v)) {
			r.fill(inside, p, true, 0.95)
		}
	}
	return inside
}

// run is a stretch of equal pixels in a row. Runs that touch form a part; they
// share a root, whose area is the part's.
type run struct {
	y, from, to int // pixels from..to-1
	root        int
	area        int
}

// fill makes the run subject or not. Certainty at least, or at most, p.
func (r run) fill(inside []bool, p plane, value bool, certainty float32) {
	for i := r.y*p.w + r.from; i < r.y*p.w+r.to; i++ {
		inside[i] = value
		if value {
			p.v[i] = max(p.v[i], certainty)
		} else {
			p.v[i] = certainty
		}
	}
}

// findParts finds the connected parts of the pixels that have the value. With
// diagonal, pixels that touch at a corner are connected.
func findParts(inside []bool, w int, value, diagonal bool) []run {
	var runs []run
	root := func(i int) int {
		for runs[i].root != i {
			runs[i].root = runs[runs[i].root].root
			i = runs[i].root
		}
		return i
	}
	reach := 0
	if diagonal {
		reach = 1
	}
	above, row := 0, 0 // first runs of the row above and of this one
	for y := range len(inside) / w {
		above, row = row, len(runs)
		line := inside[y*w : (y+1)*w]
		k := above
		for x := 0; x < w; x++ {
			if line[x] != value {
				continue
			}
			from := x
			for x < w && line[x] == value {
				x++
			}
			self := len(runs)
			runs = append(runs, run{y: y, from: from, to: x, root: self})
			for k < row && runs[k].to+reach <= from {
				k++
			}
			for j := k; j < row && runs[j].from < x+reach; j++ {
				runs[root(j)].root = root(self)
			}
		}
	}
	for i := range runs {
		runs[i].root = root(i)
		runs[runs[i].root].area += runs[i].to - runs[i].from
	}
	return runs
}
