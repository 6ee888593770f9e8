package point_test

import (
	"encoding/json"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"pictor/internal/point"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		in   string
		want point.Amount
	}{
		{"0", 0}, {"0.1", 100}, {"0.15", 150}, {"10", 10_000}, {"12.5", 12_500}, {"-0.001", -1}, {"0.150", 150},
		{"1000000000000", point.Max},
	} {
		t.Run(row.in, func(t *testing.T) {
			t.Parallel()
			got, err := point.Parse(row.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(row.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParse_refuses(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "-", ".", ".5", "1.", "1.0001", "1e3", "+1", " 1", "0x10", "1,5", "--1", "1000000000000.001", "99999999999999", "NaN"} {
		t.Run(in, func(t *testing.T) {
			t.Parallel()
			if got, err := point.Parse(in); err == nil {
				t.Errorf("Parse(%q) = %v, want an error", in, got)
			}
		})
	}
}

func TestAmount_survives_text_JSON_and_float(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := point.Amount(rapid.Int64Range(-int64(point.Max), int64(point.Max)).Draw(t, "amount"))
		text, err := point.Parse(want.String())
		if err != nil || text != want {
			t.Fatalf("Parse(%q) = %d, %v; want %d", want, text, err, want)
		}
		data, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		var back point.Amount
		if err := json.Unmarshal(data, &back); err != nil || back != want {
			t.Fatalf("JSON %s gave %d, %v; want %d", data, back, err, want)
		}
		if float := strconv.FormatFloat(want.Float(), 'f', -1, 64); float != want.String() {
			t.Fatalf("the float prints as %s, want %s", float, want)
		}
		if got := point.FromFloat(want.Float()); got != want {
			t.Fatalf("FromFloat(Float()) = %d, want %d", got, want)
		}
	})
}

func TestAffords(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		balance, cost point.Amount
		want          int
	}{{300, 100, 3}, {299, 100, 2}, {0, 100, 0}, {-50, 100, 0}, {150, 150, 1}, {1, 0, 0}} {
		if got := row.balance.Affords(row.cost); got != row.want {
			t.Errorf("%s affords %d of %s, want %d", row.balance, got, row.cost, row.want)
		}
	}
}
