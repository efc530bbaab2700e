package keyfunc

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
)

// The headers that hold a list, in canonical form.
const (
	forwardedFor = "X-Forwarded-For"
	forwarded    = "Forwarded"
)

// Proxies are the reverse proxies that are believed what they say about a client.
// The zero value trusts nobody, and its IP does what the function [IP] does.
//
// Its methods may be called by many requests at once, as long as nothing changes
// Trusted. [Proxies.UnmarshalText] reads it from a flag or a file; the Func p.IP is
// bound to what p is when it is taken, so parse the flags first.
type Proxies struct {
	// Trusted are the networks of the proxies. IPv4 and IPv4 mapped to IPv6 are
	// the same, and zones do not matter. Each must hold nothing but proxies: with
	// 0.0.0.0/0 in it, every client chooses its own key.
	Trusted []netip.Prefix

	// Unix is whether to trust what connects through a unix socket.
	Unix bool

	// Hops is how many proxies of yours a request passes, for proxies whose
	// addresses nobody knows beforehand; 0 means that Trusted and Unix say who
	// is one. The connection is that of the last of them, whatever its address,
	// so nothing else may be able to connect. Each has appended what it saw: the
	// client is entry Hops from the end of the list, 1 being the last.
	//
	// One too many and every client chooses its own key. At most 32. Set either
	// Hops or Trusted and Unix, not both.
	Hops int

	// Header is where the proxies write; "" means X-Forwarded-For. Forwarded is
	// read as RFC 7239 has it. Any other name, such as CF-Connecting-IP or
	// X-Real-IP, is a header that holds one address, that of the client; it
	// cannot be counted from its end, so it needs Trusted or Unix. Take only one
	// that the proxies replace: what they let pass, the client chooses.
	Header string
}

// IP is a [Func] whose key is the address of the client, in the forms that the
// function [IP] has.
//
// It is the connection's address unless that is a trusted proxy. If it is, the
// lines of the header, together one list, are walked from the last hop to the
// first, and the first hop that is not trusted itself is the client. Hops before
// that one are what the client wrote, and are not read. Where all hops are trusted
// the client is the first of them; where there are none, or one empty line, it is
// the proxy. With Hops it is the hop of that number, and never the proxy.
//
// The error wraps [ErrNoKey] and says why if RemoteAddr or a hop that had to be
// read is no address, such as "unknown", nothing between two commas, or more than
// 128 bytes (512 for an element of Forwarded), if more than 32 hops would have to
// be read, if there are fewer than Hops, and if a header of one address is there
// more than once. A hop may have a port. The work is bounded by these numbers
// however long the header is. The error wraps neither ErrNoKey nor [ErrSkip] if
// the fields of p contradict each other: a mistake, reported on every request.
func (p Proxies) IP(r *http.Request) (string, error) {
	addr, err := p.client(r)
	if err != nil {
		return "", err
	}
	return ipKey(addr, ipv6Bits), nil
}

// IPv6 returns a [Func] that does what [Proxies.IP] does, but counts the clients
// that have IPv6 by the first bits of their address, 32 to 128, instead of 64. As a
// second rule with a higher limit,
//
//	Key: proxies.IPv6(48)
//
// stops the client who has a /48, and with it 65,536 networks of /64. Clients that
// have IPv4 are counted by address all the same.
//
// With bits out of range, every request gets an error that says so and wraps
// neither [ErrNoKey] nor [ErrSkip].
func (p Proxies) IPv6(bits int) Func {
	if bits < 32 || bits > 128 {
		return failing(fmt.Errorf("keyfunc: IPv6 by /%d: must be 32 to 128", bits))
	}
	return func(r *http.Request) (string, error) {
		addr, err := p.client(r)
		if err != nil {
			return "", err
		}
		return ipKey(addr, bits), nil
	}
}

// Addr returns the address that IP makes its key of, before any masking: to look
// it up in a list of networks. It has no zone and is never IPv4 mapped to IPv6,
// but an address behind NAT64 stays one.
//
// The error is IP's, and wraps [ErrNoKey] too if the client is at the other end of
// a unix socket.
func (p Proxies) Addr(r *http.Request) (netip.Addr, error) {
	addr, err := p.client(r)
	if err == nil && !addr.IsValid() {
		err = fmt.Errorf("%w: a client of a unix socket has no address", ErrNoKey)
	}
	return addr, err
}

// UserID returns a [Func] whose key is the value of a header in which a trusted
// proxy says who the user is; with Hops, that is whatever connects. The proxy must
// replace what the client sent under that name: if it only adds to it, or lets it
// pass, clients choose their key.
//
// The error wraps [ErrNoKey] if the connection does not come from a trusted
// proxy, or the header is missing, empty, or there more than once.
func (p Proxies) UserID(header string) Func {
	value := Header(header)
	untrusted := fmt.Errorf("%w: %s comes from no trusted proxy", ErrNoKey, header)
	return func(r *http.Request) (string, error) {
		if err := p.contradiction(); err != nil {
			return "", err
		}
		addr, _, err := peer(r)
		if err != nil {
			return "", err
		}
		if p.Hops == 0 && !p.trusts(addr) {
			return "", untrusted
		}
		return value(r)
	}
}

// contradiction returns what is wrong with the fields that exclude each other.
// All other mistakes make p trust less, not more.
func (p Proxies) contradiction() error {
	if p.Hops == 0 && p.Header == "" {
		return nil
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("keyfunc: "+format, args...)) }
	if p.Hops < 0 || p.Hops > maxHops {
		bad("Proxies.Hops is %d: must be 0 to %d", p.Hops, maxHops)
	}
	if p.Hops != 0 && (len(p.Trusted) > 0 || p.Unix) {
		bad("Proxies.Hops trusts whatever connects, Trusted and Unix do not: set one of the two")
	}
	if !isToken(cmp.Or(p.Header, forwardedFor)) {
		bad("Proxies.Header %.64q is no name of a header", p.Header)
	}
	if name := p.header(); p.Hops != 0 && name != forwardedFor && name != forwarded {
		bad("Proxies.Header %q holds one address, no list for Hops to count: set Trusted or Unix instead of Hops", p.Header)
	}
	return errors.Join(errs...)
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
	return slices.ContainsFunc(p.Trusted, func(network netip.Prefix) bool {
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
