package intake_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"pictor/internal/fault"
	"pictor/internal/intake"
	"pictor/internal/job"
)

// Nothing in this file dials: the guard is asked about addresses, and refused
// literals never get as far as a connection.

func TestGuard_refuses_addresses_that_are_not_public(t *testing.T) {
	t.Parallel()
	in := newIntake(t, intake.Config{})
	for _, address := range []string{
		// Loopback, private, link-local, multicast, unspecified.
		"127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.1.1", "224.0.0.1", "0.0.0.0",
		"::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12:3456::1", "ff02::1",
		// Services inside clouds.
		"169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192", "168.63.129.16", "fd00:ec2::254", "fd20:ce::254",
		// Special ranges that net.IP.IsPrivate and its sisters let through.
		"0.1.2.3", "100.64.0.1", "192.0.0.1", "192.0.2.1", "192.88.99.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "240.0.0.1", "255.255.255.255",
		"fec0::1", "2001:db8::1", "3fff::1", "100::1", "5f00::1",
		// IPv4 inside IPv6: mapped, compatible, NAT64, local NAT64, 6to4, Teredo.
		"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::ffff:168.63.129.16", "::127.0.0.1",
		"64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a9fe:a9fe::", "2001:0:7f00:1::",
	} {
		addr := netip.MustParseAddr(address)
		if err := in.CheckAddr(addr); err == nil {
			t.Errorf("%s passed", addr)
		}
		network := "tcp6"
		if addr.Is4() {
			network = "tcp4"
		}
		if err := in.CheckDial(network, netip.AddrPortFrom(addr, 80).String()); err == nil {
			t.Errorf("a connection to %s passed", addr)
		}
		// A literal in the URL is the client's own doing, and said so.
		u := url.URL{Scheme: "http", Host: netip.AddrPortFrom(addr, 8080).String(), Path: "/cat.png"}
		_, err := in.Take(t.Context(), job.RemoveBG, intake.Source{URL: u.String()})
		refused(t, err, fault.InvalidImageURL, "public host")
	}
}

func TestGuard_lets_public_addresses_pass(t *testing.T) {
	t.Parallel()
	in := newIntake(t, intake.Config{})
	for _, address := range []string{
		"8.8.8.8", "1.1.1.1", "93.184.215.14", "172.15.255.255", "172.32.0.1", "100.63.255.255", "100.128.0.1", "169.253.0.1", "168.63.129.17", "223.255.255.255",
		"2606:4700::6810:1", "2a00:1450:4001::1", "::ffff:8.8.8.8",
	} {
		if err := in.CheckAddr(netip.MustParseAddr(address)); err != nil {
			t.Error(err)
		}
	}
	if err := in.CheckDial("tcp4", "8.8.8.8:8443"); err != nil {
		t.Errorf("port 8443: %v", err)
	}
}

func TestGuard_refuses_other_networks_and_what_is_no_address(t *testing.T) {
	t.Parallel()
	in := newIntake(t, intake.Config{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}})
	for _, row := range [][2]string{{"udp4", "8.8.8.8:53"}, {"unix", "/run/docker.sock"}, {"tcp", "8.8.8.8:80"}, {"tcp4", "example.com:80"}, {"tcp4", "8.8.8.8"}, {"tcp4", ""}} {
		if err := in.CheckDial(row[0], row[1]); err == nil {
			t.Errorf("%s %s passed", row[0], row[1])
		}
	}
}

func TestGuard_allows_what_the_operator_allows_and_no_more(t *testing.T) {
	t.Parallel()
	in := newIntake(t, intake.Config{Allow: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/32")}})
	for address, want := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "fd00:1::9": true,
		"10.2.0.1": false, "127.0.0.1": false, "fd00:2::9": false, "169.254.169.254": false,
	} {
		if err := in.CheckAddr(netip.MustParseAddr(address)); (err == nil) != want {
			t.Errorf("%s: %v, want that it passes to be %t", address, err, want)
		}
	}
}

func TestURL_refuses_what_is_no_absolute_public_URL(t *testing.T) {
	t.Parallel()
	in := newIntake(t, intake.Config{})
	for _, s := range []string{
		"nope", "cat.png", "/cat.png", "//example.com/cat.png", "example.com/cat.png", "example.com:80/cat.png",
		"ftp://example.com/cat.png", "file:///etc/passwd", "data:image/png;base64,QUJD", "javascript:alert(1)", "gopher://example.com/", "unix:///run/docker.sock",
		"http://", "http:///cat.png", "http://:80/cat.png", "http:example.com/cat.png", "https://?x",
		"http://user@example.com/", "http://user:secret@example.com/", "http://@example.com/", "https://example.com@127.0.0.1/",
		"http://example.com:0/", "http://example.com:65536/", "http://example.com:http/", "http://example.com:-1/",
		"http://exa mple.com/", "http://example.com\\@127.0.0.1/", "http://example.com/\x00", "http://[::1/", "http://[::1]x/", "http://%zz/",
		// Spellings of 127.0.0.1 that some resolvers understand.
		"http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0x7f.0.0.1/", "http://017700000001/", "http://0177.0.0.1/", "http://127.0.0.01/", "http://127.0.0.1./", "http://127.000.000.001/",
		"http://08/", "http://256.256.256.256/", "http://1.2.3.4.5/", "http://99999999999999999999999/",
		"http://[fe80::1%25eth0]/", "http://[::ffff:7f00:1]/",
		"http://example.com/" + strings.Repeat("a", 9000),
	} {
		_, err := in.Take(t.Context(), job.RemoveBG, intake.Source{URL: s})
		refused(t, err, fault.InvalidImageURL, "absolute http(s) URL")
	}
	for _, s := range []string{"", " ", "\n"} {
		_, err := in.Take(t.Context(), job.RemoveBG, intake.Source{URL: s})
		refused(t, err, fault.MissingImage, "")
	}
}

func TestURL_would_ask_for(t *testing.T) {
	t.Parallel()
	in := newIntake(t, intake.Config{})
	for _, s := range []string{
		"http://example.com", "https://example.com/cat.png?size=1#top", "HTTPS://EXAMPLE.COM/", "http://example.com:8080/", "http://example.com./", "http://example.com:/",
		"http://8.8.8.8/", "http://[2606:4700::6810:1]:81/", "http://localhost/", "http://bücher.example/", "http://a.b-c.example/x y.png", "http://3com.com/", "http://1.2.3.4.example/", "http://x.0xy.example.cafe/",
	} {
		if err := in.CheckURL(s); err != nil {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// FuzzURL holds that no URL with a literal address gets past the guard. It
// only parses: nothing is looked up or dialled.
func FuzzURL(f *testing.F) {
	for _, s := range []string{"http://example.com/x", "http://127.0.0.1:80", "https://[::1%25lo]/", "http://0x7f.1", "http://u:p@h/", "http://[::ffff:1.2.3.4]", "//h", "http:h"} {
		f.Add(s)
	}
	in, err := intake.New(intake.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if in.CheckURL(s) != nil {
			return
		}
		u, err := url.Parse(s)
		if err != nil || u.User != nil || u.Hostname() == "" || (u.Scheme != "http" && u.Scheme != "https") {
			t.Fatalf("%q passed: %v", s, err)
		}
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil && in.CheckAddr(addr) != nil {
			t.Fatalf("%q passed", s)
		}
	})
}
