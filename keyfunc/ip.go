package keyfunc

import (
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/seed75154129/ratelimit/internal/hint"
)

const (
	// unixKey is the key of the clients of a unix socket, who have no address.
	unixKey = "unix"

	// ipv6Bits is how much of an IPv6 address tells clients apart.
	ipv6Bits = 64

	// maxAddrText is the longest text that is read as an address. The longest
	// that makes sense has brackets, 45 bytes of address, a zone and a port.
	maxAddrText = 128
)

// nat64 is the prefix that translators put before the IPv4 address of a client
// (RFC 6052, section 2.1).
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// IP is the [Key] that is the address of the connection, from r.RemoteAddr, with or
// without a port. It reads no header. So a client can choose its key only if
// middleware in front copies a header into RemoteAddr. Behind a reverse proxy all
// clients have the proxy's key: use [Proxies.IP] there.
//
//	203.0.113.9:4711           203.0.113.9      IPv4: the whole address
//	[2001:db8::1]:4711         2001:db8::/64    IPv6: the /64 network, without zone
//	[::ffff:203.0.113.9]:4711  203.0.113.9      IPv4 mapped to IPv6: as IPv4
//	[64:ff9b::cb00:7109]:4711  203.0.113.9      IPv4 behind NAT64: as IPv4
//	@                          unix             all clients of a unix socket share one key
//
// Only the well-known prefix 64:ff9b::/96 is recognised as NAT64. If a translator uses
// another prefix, all IPv4 clients behind it share a /64. RemoteAddr belongs to a unix
// socket if it is empty or starts with "@" or "/".
//
// If RemoteAddr is neither an address nor of a unix socket, the error wraps [ErrNoKey]
// and says so. Resolve makes no allocation for an IPv4 client, and one for an IPv6 client.
var IP Key = byConnection()

func byConnection() *key {
	return leaf("ip", hint.Traits{Address: true}, nil, func(r *http.Request) (string, error) {
		if host, ok := dottedQuad(r.RemoteAddr); ok {
			return host, nil
		}
		addr, err := peer(r)
		if err != nil {
			return "", err
		}
		return ipKey(addr, ipv6Bits), nil
	}, addressKey(ipv6Bits))
}

// dottedQuad returns the address in "192.0.2.1:40000" or "192.0.2.1", whose text is the key as
// it stands; false for all other forms. It takes a third of the time of peer: most rules ask
// for the address, and most RemoteAddrs have this form.
func dottedQuad(s string) (host string, ok bool) {
	dots, digits, n := 0, 0, 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			digits, n = digits+1, 10*n+int(c-'0')
			if n > 255 || digits > 1 && n < 10 { // begins with a 0
				return "", false
			}
		case digits == 0:
			return "", false
		case c == '.' && dots < 3:
			dots, digits, n = dots+1, 0, 0
		case c == ':' && dots == 3:
			return s[:i], isPort(s[i+1:])
		default:
			return "", false
		}
	}
	return s, dots == 3 && digits > 0
}

// addressKey returns a function that returns the key of the client at an address,
// or in a network of the size that a key stands for.
func addressKey(bits int) func(value string) (string, error) {
	return func(value string) (string, error) {
		value = strings.TrimSpace(value)
		if value == unixKey {
			return unixKey, nil
		}
		if addr, ok := parseAddr(value); ok {
			return ipKey(addr, bits), nil
		}
		if network, err := netip.ParsePrefix(value); err == nil {
			key := ipKey(network.Addr().Unmap(), bits)
			if network.IsSingleIP() || key == network.String() {
				return key, nil
			}
			return "", fmt.Errorf("%q is not one client: give an address, or an IPv6 network of the size that is counted, /%d", value, bits)
		}
		return "", fmt.Errorf("%.64q is no address: give one such as 203.0.113.9 or 2001:db8::1", value)
	}
}

// peer returns the address of the other end of the connection. A unix socket has the zero
// Addr.
func peer(r *http.Request) (netip.Addr, error) {
	s := r.RemoteAddr
	if s == "" || s[0] == '@' || s[0] == '/' {
		return netip.Addr{}, nil
	}
	addr, ok := parseAddr(s)
	if !ok {
		return netip.Addr{}, fmt.Errorf("%w: RemoteAddr %.64q is not an IP address", ErrNoKey, s)
	}
	return addr, nil
}

// ipKey returns the key of a client at addr: of IPv6 the first bits of the
// address, of IPv4 all of it. addr must come from parseAddr, or be the zero Addr
// of a unix socket.
func ipKey(addr netip.Addr, bits int) string {
	if nat64.Contains(addr) {
		b := addr.As16()
		addr = netip.AddrFrom4([4]byte(b[12:]))
	}
	switch {
	case !addr.IsValid():
		return unixKey
	case addr.Is4():
		return addr.String()
	}
	network := netip.PrefixFrom(addr, bits).Masked()
	var buf [len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255/128")]byte
	return string(network.AppendTo(buf[:0]))
}

// parseAddr reads an address the way RemoteAddr and X-Forwarded-For hold it: with
// or without port, brackets, zone and blanks around. The Addr has no zone and is
// never IPv4 mapped to IPv6, so it can be masked and compared.
func parseAddr(s string) (addr netip.Addr, ok bool) {
	if len(s) > maxAddrText {
		return netip.Addr{}, false
	}
	host, ok := cutPort(strings.Trim(s, " \t"))
	if !ok {
		return netip.Addr{}, false
	}
	// ParseAddr would intern the zone, which a client may have chosen.
	host, zone, zoned := strings.Cut(host, "%")
	addr, err := netip.ParseAddr(host)
	if err != nil || zoned && (zone == "" || addr.Is4()) {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}

// cutPort returns s without its port and brackets, if it has any. Some proxies write a
// port after IPv6 without brackets. It is one where it cannot be a part of the address: behind
// a dotted quad or eight groups, or with five digits.
func cutPort(s string) (host string, ok bool) {
	if inner, bracketed := strings.CutPrefix(s, "["); bracketed {
		host, port, closed := strings.Cut(inner, "]")
		if !closed || !strings.Contains(host, ":") {
			return "", false
		}
		return host, port == "" || port[0] == ':' && isPort(port[1:])
	}
	colon := strings.LastIndexByte(s, ':')
	if colon < 0 {
		return s, true
	}
	host, port := s[:colon], s[colon+1:]
	switch colons := strings.Count(s, ":"); {
	case colons == 1:
		return host, isPort(port)
	case isPort(port) && (strings.Contains(host, ".") || len(port) == len("65535") || colons == 8 && !strings.Contains(s, "::")):
		return host, true
	}
	return s, true
}

func isPort(s string) bool {
	_, err := strconv.ParseUint(s, 10, 16)
	return err == nil
}
