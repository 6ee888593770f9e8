// Package point is the currency of Pictor: exact amounts of Point.
//
// An Amount is an integer number of milli-Points, so that 0.1, 0.15 and their
// sums are exact. No float ever takes part in a calculation; Float exists only
// for the generated API types, whose JSON numbers it prints exactly.
package point

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Currency is the name of the unit in the API.
const Currency = "Point"

// Amount is a number of milli-Points: 0.1 Point is 100.
type Amount int64

// Point is one whole Point.
const Point Amount = 1000

// Max is the largest amount that Parse accepts: far below where the float64
// of the API's JSON would lose a milli-Point (2^53).
const Max Amount = 1e15

var errSyntax = errors.New("want a decimal number with at most three decimals, like 12.5")

// Parse reads a decimal number of Point, such as "10", "0.15" or "-2.5".
// More than three decimals, exponents and amounts beyond Max are refused.
func Parse(s string) (Amount, error) {
	digits, negative := strings.CutPrefix(s, "-")
	whole, fraction, hasPoint := strings.Cut(digits, ".")
	if whole == "" || len(whole) > 13 || (hasPoint && fraction == "") || len(fraction) > 3 || !isDigits(whole) || !isDigits(fraction) {
		return 0, fmt.Errorf("amount %q: %w", s, errSyntax)
	}
	n, err := strconv.ParseInt(whole+fraction+"000"[len(fraction):], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("amount %q: %w", s, errSyntax)
	}
	if Amount(n) > Max {
		return 0, fmt.Errorf("amount %q: at most %s", s, Max)
	}
	if negative {
		n = -n
	}
	return Amount(n), nil
}

func isDigits(s string) bool {
	for _, r := range s {
		if r < '0' || r > '9' {
			return false
		}
	}
	return true
}

// String prints the shortest exact decimal: 100 is "0.1", 12500 is "12.5".
func (a Amount) String() string {
	sign, n := "", uint64(a)
	if a < 0 {
		sign, n = "-", -n
	}
	whole, fraction := n/uint64(Point), n%uint64(Point)
	if fraction == 0 {
		return sign + strconv.FormatUint(whole, 10)
	}
	return sign + strconv.FormatUint(whole, 10) + "." + strings.TrimRight(fmt.Sprintf("%03d", fraction), "0")
}

// MarshalJSON writes a JSON number in Point.
func (a Amount) MarshalJSON() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalJSON reads a JSON number in Point.
func (a *Amount) UnmarshalJSON(b []byte) error {
	n, err := Parse(string(b))
	if err != nil {
		return err
	}
	*a = n
	return nil
}

// UnmarshalText reads an amount given on a command line.
func (a *Amount) UnmarshalText(b []byte) error { return a.UnmarshalJSON(b) }

// Float is the float64 nearest to the amount in Point. Its shortest decimal
// form is the exact amount, which is what the API's JSON encoder prints.
func (a Amount) Float() float64 { return float64(a) / float64(Point) }

// FromFloat reads an amount that came as a JSON number: the nearest
// milli-Point, which is exact for every amount that Float can produce.
func FromFloat(f float64) Amount { return Amount(math.Round(f * float64(Point))) }

// Affords is how many images of the given cost the balance pays for.
func (a Amount) Affords(cost Amount) int {
	if a <= 0 || cost <= 0 {
		return 0
	}
	return int(a / cost)
}
