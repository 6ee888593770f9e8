package intake

import (
	"fmt"
	"net/netip"
	"syscall"

	"code.dny.dev/ssrf"
)

// guard keeps image_url away from everything that is not public internet. It
// is asked about the address of every connection at the moment it is made, so
// neither a redirect nor a name that changes its address gets around it.
type guard struct {
	allow []netip.Prefix
	deny  []netip.Prefix
	iana  *ssrf.Guardian // the special-purpose ranges of the IANA registries
}

func newGuard(allow []netip.Prefix) *guard {
	return &guard{
		allow: allow,
		deny: []netip.Prefix{
			// Azure's virtual host: a public address that answers only inside,
			// with the machine's configuration.
			netip.MustParsePrefix("168.63.129.16/32"),
			// Metadata of Alibaba, Oracle and the others: denied as special
			// ranges already, named so that no change of the registries can
			// open them.
			netip.MustParsePrefix("169.254.0.0/16"),
			netip.MustParsePrefix("100.100.100.200/32"),
			netip.MustParsePrefix("192.0.0.192/32"),
			netip.MustParsePrefix("fd00::/8"),
		},
		iana: ssrf.New(ssrf.WithAnyPort()),
	}
}

// check refuses an address that is not public.
func (g *guard) check(addr netip.Addr) error {
	// A socket that connects to ::ffff:a.b.c.d reaches a.b.c.d.
	addr = addr.Unmap()
	for _, p := range g.allow {
		if p.Contains(addr) {
			return nil
		}
	}
	if addr.Zone() != "" {
		return fmt.Errorf("%s belongs to one network interface", addr)
	}
	for _, p := range g.deny {
		if p.Contains(addr) {
			return fmt.Errorf("%s is in the denied range %s", addr, p)
		}
	}
	return g.iana.SafeAddr(addr)
}

// control is the Control of a net.Dialer.
func (g *guard) control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("network %s is not allowed", network)
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	return g.check(to.Addr())
}
