package keyfunc

import (
	"fmt"
	"iter"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// maxHops is how many hops of X-Forwarded-For are read. Real chains have less
// than ten; a limit keeps the work for one request constant.
const maxHops = 32

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
}

// IP is a [Func] whose key is the address of the client, in the forms that the
// function [IP] has.
//
// It is the connection's address unless that is a trusted proxy. If it is, the
// lines of X-Forwarded-For, together one list, are walked from the last hop to
// the first, and the first hop that is not trusted itself is the client. Hops
// before that one are what the client wrote, and are not read. Where all hops are
// trusted the client is the first of them; where there are none, or one empty
// line, it is the proxy.
//
// The error wraps [ErrNoKey] and says why if RemoteAddr or a hop that had to be
// read is no address, such as "unknown", nothing between two commas, or more than
// 128 bytes, and if more than 32 hops would have to be read. A hop may have a
// port. The work is bounded by these numbers however long the header is.
func (p Proxies) IP(r *http.Request) (string, error) {
	addr, err := p.client(r)
	if err != nil {
		return "", err
	}
	return ipKey(addr, ipv6Bits), nil
}

// Addr returns the address that IP makes its key of, before any masking: to look
// it up in a list of networks. It has no zone and is never IPv4 mapped to IPv6,
// but an address behind NAT64 stays one.
//
// The error wraps [ErrNoKey] where IP's does, and if the client is at the other
// end of a unix socket.
func (p Proxies) Addr(r *http.Request) (netip.Addr, error) {
	addr, err := p.client(r)
	if err == nil && !addr.IsValid() {
		err = fmt.Errorf("%w: a client of a unix socket has no address", ErrNoKey)
	}
	return addr, err
}

// UserID returns a [Func] whose key is the value of a header in which a trusted
// proxy says who the user is. The proxy must replace what the client sent under
// that name: if it only adds to it, or lets it pass, clients choose their key.
//
// The error wraps [ErrNoKey] if the connection does not come from a trusted
// proxy, or the header is missing, empty, or there more than once.
func (p Proxies) UserID(header string) Func {
	value := Header(header)
	untrusted := fmt.Errorf("%w: %s comes from no trusted proxy", ErrNoKey, header)
	return func(r *http.Request) (string, error) {
		addr, _, err := peer(r)
		if err != nil {
			return "", err
		}
		if !p.trusts(addr) {
			return "", untrusted
		}
		return value(r)
	}
}

// client returns the address of who sent the request; the zero Addr stands for a
// unix socket.
func (p Proxies) client(r *http.Request) (netip.Addr, error) {
	addr, _, err := peer(r)
	if err != nil {
		return netip.Addr{}, err
	}
	lines := r.Header.Values("X-Forwarded-For")
	if len(lines) == 1 && lines[0] == "" {
		return addr, nil
	}
	n := 0
	for hop := range hops(lines) {
		if !p.trusts(addr) {
			return addr, nil
		}
		if n++; n > maxHops {
			return netip.Addr{}, fmt.Errorf("%w: the client is not among the last %d hops of X-Forwarded-For", ErrNoKey, maxHops)
		}
		next, _, ok := parseAddr(hop)
		if !ok {
			return netip.Addr{}, fmt.Errorf("%w: hop %d from the end of X-Forwarded-For, %.64q, is not an IP address",
				ErrNoKey, n, hop)
		}
		addr = next
	}
	return addr, nil
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

// hops yields the elements of a list header from the last to the first.
func hops(lines []string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, line := range slices.Backward(lines) {
			for more := true; more; {
				var hop string
				line, hop, more = cutLast(line)
				if !yield(hop) {
					return
				}
			}
		}
	}
}

// cutLast cuts list at its last comma. It searches no further than an address
// reaches: where that finds none, hop is the whole list, and parseAddr refuses
// what is longer.
func cutLast(list string) (rest, hop string, more bool) {
	start := max(0, len(list)-maxAddrText-1)
	i := strings.LastIndexByte(list[start:], ',')
	if i < 0 {
		return "", list, false
	}
	i += start
	return list[:i], list[i+1:], true
}
