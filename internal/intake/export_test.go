package intake

import (
	"net/netip"
)

// OpenBase64 is openBase64.
var OpenBase64 = openBase64

// CheckAddr asks the guard about an address, without dialling it.
func (in *Intake) CheckAddr(addr netip.Addr) error { return in.guard.check(addr) }

// CheckDial asks the guard as a dialer does.
func (in *Intake) CheckDial(network, address string) error {
	return in.guard.control(network, address, nil)
}

// CheckURL says whether a URL would be asked for.
func (in *Intake) CheckURL(s string) error {
	_, err := in.parse(s)
	return err
}
