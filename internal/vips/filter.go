package vips

import "encoding/binary"

// filterRows appends the rows to out, each behind its filter's number, as PNG
// stores them. above is the row before the first; its length is that of a row.
func filterRows(out, rows, above []byte, bands int) []byte {
	for len(rows) > 0 {
		row := rows[:len(above)]
		rows = rows[len(above):]
		const up = 2
		out = append(out, up)
		out = appendDifference(out, row, above)
		above = row
	}
	return out
}

// appendDifference appends a-b byte by byte, eight at a time.
func appendDifference(out, a, b []byte) []byte {
	const high = 0x8080808080808080 // keeps each byte's borrow out of its neighbour
	for len(a) >= 8 && len(b) >= 8 {
		x, y := binary.LittleEndian.Uint64(a), binary.LittleEndian.Uint64(b)
		out = binary.LittleEndian.AppendUint64(out, ((x|high)-(y&^high))^((x^^y)&high))
		a, b = a[8:], b[8:]
	}
	for i := range a {
		out = append(out, a[i]-b[i])
	}
	return out
}
