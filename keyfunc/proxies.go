package keyfunc

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"github.com/seed75154129/ratelimit/internal/hint"
)

// The headers that hold a list, in canonical form. Forwarded is not read.
const (
	forwardedFor = "X-Forwarded-For"
	forwarded    = "Forwarded"
)

// Proxies describes the proxies whose forwarding headers are trusted. The zero value
// trusts none, and its IP is the same as the variable [IP].
//
// [Proxies.UnmarshalText] reads Proxies from a flag or a file. A [Key] keeps the fields as
// they are when a method makes it, so parse the flags first. The methods are safe for
// concurrent use, as long as nothing changes Trusted.
type Proxies struct {
	// Trusted are the networks of the proxies. IPv4 and IPv4 mapped to IPv6 are the
	// same, and zones do not matter. Each network must hold nothing but proxies: a
	// client in it can choose its own key. So networks that hold much of the internet
	// are a mistake: IPv4 networks wider than /8, and public IPv6 networks of /16 and
	// wider. Host bits, as in 10.1.2.3/8, are a mistake too.
	Trusted []netip.Prefix

	// Unix says whether to trust connections through a unix socket.
	Unix bool

	// Hops is how many of your proxies a request passes, for proxies whose addresses
	// are not known beforehand; 0 means that Trusted and Unix identify the proxies.
	// With Hops, every connection counts as the last proxy's, whatever its address. So
	// nothing but your proxies may be able to connect. Each proxy appends the address that it
	// sees, never nothing: the client is entry number Hops from the end of the list, where 1 is the last.
	//
	// If Hops is too high, even by one, every client can choose its own key. At most
	// 32. With Hops, set neither Trusted nor Unix.
	Hops int

	// Header is the header in which the proxies write; "" means X-Forwarded-For.
	// Any other header, such as CF-Connecting-IP or X-Real-IP, holds one address, that of
	// the client. Hops cannot count in such a header, so it needs Trusted or Unix. Choose
	// such a header only if the proxies replace it: if they let it pass, the client chooses
	// its value. Forwarded is a mistake: it is not read.
	Header string
}

// IP returns a [Key] that is the address of the client, in the forms of the
// variable [IP].
//
// The client is the connection's address unless that is a trusted proxy. If it is, the
// lines of the header are read as one list of hops, from the last to the first. The
// client is the first hop in this order that is not trusted. The hops beyond are not read:
// the client may have written them. If all hops are trusted, the client is the
// leftmost one. If there are no hops, the client is the proxy. With Hops, the client is the
// hop of that number, and never the proxy. Empty elements between commas are no hops.
//
// The error wraps [ErrNoKey] and says why. It is returned if RemoteAddr, or a hop that had
// to be read, is not an address: for example "unknown", or a text of more than 128 bytes.
// It is also returned if more than 32 elements would have to be read, if there are fewer
// hops than Hops, or if a header that holds one address is repeated. A hop may have a port,
// after IPv6 without brackets too where it is no part of the address. The maxima of 32
// elements and of 128 bytes bound the work, however long the header is.
//
// Fields that contradict each other are a mistake. So are an invalid network, and a
// Header that is never read because no proxy is trusted.
func (p Proxies) IP() Key { return p.byAddress("ip", ipv6Bits, nil) }

// IPv6 returns a [Key] like that of [Proxies.IP], but counts IPv6 clients by the first
// bits of their address, this many (32 to 128) instead of 64. A second rule with a higher
// limit and
//
//	Key: proxies.IPv6(48)
//
// limits a client that has a /48, and so 65,536 networks of /64. IPv4 clients are still
// counted by their whole address. Fewer than 32 or more than 128 bits are a mistake.
func (p Proxies) IPv6(bits int) Key {
	var wrong error
	if bits < 32 || bits > 128 {
		wrong = mistake("IPv6", "/%d: give 32 to 128 bits", bits)
	}
	return p.byAddress("ipv6:"+strconv.Itoa(bits), bits, wrong)
}

func (p Proxies) byAddress(name string, bits int, wrong error) *key {
	return leaf(name, hint.Traits{Address: true}, errors.Join(p.validate(), wrong), func(r *http.Request) (string, error) {
		addr, err := p.client(r)
		if err != nil {
			return "", err
		}
		return ipKey(addr, bits), nil
	}, addressKey(bits))
}

// Addr returns the client's address before any masking, to look it up in a list of
// networks. The address has no zone. IPv4 mapped to IPv6 becomes IPv4, but a NAT64
// address stays as it is.
//
// The errors are those of the Key that [Proxies.IP] returns. A client at the other end of
// a unix socket has no address: for it, the error wraps [ErrNoKey], too.
func (p Proxies) Addr(r *http.Request) (netip.Addr, error) {
	if err := p.validate(); err != nil {
		return netip.Addr{}, err
	}
	addr, err := p.client(r)
	if err == nil && !addr.IsValid() {
		err = fmt.Errorf("%w: a client of a unix socket has no address", ErrNoKey)
	}
	return addr, err
}

// In returns a function that reports whether a client's address, as [Proxies.Addr]
// returns it, is in one of the networks. Use it for a list of clients that are not
// limited. The function returns false if there is no address, and always if the fields
// of p are a mistake.
func (p Proxies) In(networks ...netip.Prefix) func(*http.Request) bool {
	networks, wrong := slices.Clone(networks), p.validate()
	return func(r *http.Request) bool {
		if wrong != nil {
			return false
		}
		addr, err := p.client(r)
		return err == nil && contains(networks, addr)
	}
}

// UserID returns a [Key] that is the value of a header in which a trusted proxy names
// the user. With Hops, every connection is trusted. The proxy must replace a header of
// that name that the client sent. If the proxy adds to it, or lets it pass, clients can
// choose their key.
//
// The error wraps [ErrNoKey] if the connection does not come from a trusted proxy,
// or if the header is missing, empty or repeated. A name that no header can have is a
// mistake, and so is whatever is a mistake for [Proxies.IP].
func (p Proxies) UserID(header string) Key {
	header = http.CanonicalHeaderKey(header)
	value := headerValue(header)
	untrusted := fmt.Errorf("%w: %s comes from no trusted proxy", ErrNoKey, header)
	return leaf("userid:"+header, hint.Traits{}, errors.Join(p.validate(), checkHeader("UserID", header)), func(r *http.Request) (string, error) {
		addr, err := peer(r)
		if err != nil {
			return "", err
		}
		if p.Hops == 0 && !p.trusts(addr) {
			return "", untrusted
		}
		return value(r)
	}, func(value string) (string, error) { return plain(trim(value)) })
}

// validate returns everything that is wrong with the fields.
func (p Proxies) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, mistake("Proxies", format, args...)) }
	for i, network := range p.Trusted {
		if err := checkNetwork(network); err != nil {
			bad("Trusted[%d], %s: %w", i, network, err)
		}
	}
	if p.Hops < 0 || p.Hops > maxHops {
		bad("Hops is %d: must be 0 to %d", p.Hops, maxHops)
	}
	trusting := len(p.Trusted) > 0 || p.Unix
	if p.Hops != 0 && trusting {
		bad("Hops trusts whatever connects, Trusted and Unix do not: set one of the two")
	}
	switch name := p.header(); {
	case p.Header == "":
	case name == forwarded:
		bad("Header %q is not read: have your proxies append to X-Forwarded-For, and remove Header", p.Header)
	case !isToken(p.Header):
		bad("Header %.64q is no name of a header", p.Header)
	case p.Hops == 0 && !trusting:
		bad("Header %q is never read, since nobody is trusted: set Trusted, Unix or Hops, or remove Header", p.Header)
	case p.Hops != 0 && name != forwardedFor:
		bad("Header %q holds one address, no list for Hops to count: set Trusted or Unix instead of Hops", p.Header)
	}
	return errors.Join(errs...)
}

// checkNetwork returns what is wrong with a trusted network.
func checkNetwork(network netip.Prefix) error {
	switch masked := network.Masked(); {
	case !network.IsValid():
		return errors.New("this is no valid network")
	case masked != network:
		return fmt.Errorf("bits are set beyond the length: write %s for the network, or %s for the one address",
			unmap(masked), network.Addr().Unmap())
	case isWide(unmap(network)):
		return errors.New("it holds a large part of the internet, whose clients could choose their keys: " +
			"list the networks of your own proxies, or say with Hops how many there are")
	}
	return nil
}

// public are the global unicast addresses of IPv6 (RFC 4291, section 2.4).
var public = netip.MustParsePrefix("2000::/3")

// isWide reports whether a network holds more of the internet than anybody has for
// proxies.
func isWide(network netip.Prefix) bool {
	if network.Addr().Is4() {
		return network.Bits() < 8
	}
	return network.Bits() <= 16 && network.Overlaps(public) || network.Bits() < nat64.Bits()+8 && network.Overlaps(nat64)
}

// header returns the canonical name of the header to read.
func (p Proxies) header() string {
	if p.Header == "" {
		return forwardedFor
	}
	return http.CanonicalHeaderKey(p.Header)
}

// trusts reports whether addr, from parseAddr or the zero Addr of a unix socket,
// is a trusted proxy. NAT64 is not translated: the prefix may not carry private
// addresses (RFC 6052, section 3.1), so one that seems to is not our proxy.
func (p Proxies) trusts(addr netip.Addr) bool {
	if !addr.IsValid() {
		return p.Unix
	}
	return contains(p.Trusted, addr)
}

func contains(networks []netip.Prefix, addr netip.Addr) bool {
	return slices.ContainsFunc(networks, func(network netip.Prefix) bool {
		return unmap(network).Contains(addr)
	})
}

// unmap returns a network of IPv4 mapped to IPv6 as the IPv4 network it is.
func unmap(network netip.Prefix) netip.Prefix {
	if network.Addr().Is4In6() && network.Bits() >= 96 {
		return netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-96)
	}
	return network
}
