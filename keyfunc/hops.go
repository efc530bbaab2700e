package keyfunc

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
)

// maxHops is how many hops of a list are read. Real chains have less than ten; a
// limit keeps the work for one request constant.
const maxHops = 32

// client returns the address of who sent the request; the zero Addr stands for a
// unix socket. The fields of p must be valid.
func (p Proxies) client(r *http.Request) (netip.Addr, error) {
	addr, err := peer(r)
	if err != nil {
		return netip.Addr{}, err
	}
	header := p.header()
	lines := r.Header.Values(header)
	if header == forwardedFor {
		return p.walk(addr, hops{lines: lines})
	}
	if len(lines) == 0 || len(lines) == 1 && lines[0] == "" || !p.trusts(addr) {
		return addr, nil
	}
	if len(lines) > 1 {
		return netip.Addr{}, fmt.Errorf("%w: header %q more than once", ErrNoKey, p.Header)
	}
	addr, ok := parseAddr(lines[0])
	if !ok {
		return netip.Addr{}, fmt.Errorf("%w: header %q, %.64q, is not an IP address", ErrNoKey, p.Header, lines[0])
	}
	return addr, nil
}

// walk returns the client from the hops of X-Forwarded-For, the last first. addr is the
// connection's.
func (p Proxies) walk(addr netip.Addr, list hops) (netip.Addr, error) {
	n, read := 0, 0
	for hop, more := list.next(); more; hop, more = list.next() {
		if p.Hops == 0 && !p.trusts(addr) || p.Hops > 0 && n == p.Hops {
			return addr, nil
		}
		if read++; read > maxHops {
			return netip.Addr{}, fmt.Errorf("%w: the client is not among the last %d hops of %s", ErrNoKey, maxHops, forwardedFor)
		}
		if len(hop) <= maxAddrText && trim(hop) == "" { // no element: RFC 9110, section 5.6.1
			continue
		}
		n++
		next, ok := parseAddr(hop)
		if !ok {
			return netip.Addr{}, fmt.Errorf("%w: hop %d from the end of %s, %.64q, is not an IP address", ErrNoKey, n, forwardedFor, hop)
		}
		addr = next
	}
	if n < p.Hops {
		return netip.Addr{}, fmt.Errorf("%w: %s has %d of the %d hops", ErrNoKey, forwardedFor, n, p.Hops)
	}
	return addr, nil
}

// hops are the elements of X-Forwarded-For that are still to be read, the last first.
type hops struct {
	lines []string
	rest  string // of the line that was lines' last, if there is more of it
	more  bool
}

// next returns the last element, which is then gone; false if there is none.
func (h *hops) next() (hop string, ok bool) {
	if !h.more {
		last := len(h.lines) - 1
		if last < 0 {
			return "", false
		}
		h.rest, h.lines = h.lines[last], h.lines[:last]
	}
	h.rest, hop, h.more = cutLast(h.rest)
	return hop, true
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
