package keyfunc

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// UnmarshalText reads a list of networks, single addresses, the word unix, and the fields
// Hops and Header, separated by commas, white space or lines. It is for [flag.TextVar] and
// for files, such as the lists of networks that CDNs publish:
//
//	10.0.0.0/8, 192.0.2.7, 2001:db8:1::/48, unix
//	10.0.0.0/8, header=CF-Connecting-IP
//	hops=2
//
// An empty text trusts no proxy.
//
// UnmarshalText replaces p. If it fails, p is unchanged. The error joins one error for each
// invalid item, with how to correct it, and one for each contradiction between items. A
// network with host bits set, such as 10.1.2.3/8, is invalid, because it could mean the
// network or the address. So is a network that holds much of the internet.
func (p *Proxies) UnmarshalText(text []byte) error {
	if len(bytes.TrimSpace(text)) == 0 {
		*p = Proxies{}
		return nil
	}
	var (
		read Proxies
		errs []error
	)
	for part := range strings.SplitSeq(string(text), ",") {
		items := strings.Fields(part)
		if len(items) == 0 {
			items = []string{""} // an error
		}
		for _, item := range items {
			if err := read.add(item); err != nil {
				errs = append(errs, fmt.Errorf("keyfunc: trusted proxy %q: %w", item, err))
			}
		}
	}
	if err := errors.Join(append(errs, read.validate())...); err != nil {
		return err
	}
	*p = read
	return nil
}

// add adds one item of the text form.
func (p *Proxies) add(item string) error {
	if item == unixKey {
		p.Unix = true
		return nil
	}
	switch name, value, _ := strings.Cut(item, "="); name {
	case "hops":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > maxHops {
			return fmt.Errorf("write the number of your proxies, 1 to %d, such as hops=2", maxHops)
		}
		if p.Hops != 0 {
			return errors.New("hops is there twice: remove one")
		}
		p.Hops = n
		return nil
	case "header":
		if !isToken(value) {
			return errors.New("write the name of a header, such as header=X-Real-IP")
		}
		if p.Header != "" {
			return errors.New("header is there twice: remove one")
		}
		p.Header = value
		return nil
	}
	network, err := parseNetwork(item)
	if err != nil {
		return err
	}
	p.Trusted = append(p.Trusted, network)
	return nil
}

// MarshalText returns the list that UnmarshalText reads, with IPv4 mapped to IPv6 as
// IPv4; it is empty for the zero value. The error is everything that is wrong with p.
func (p Proxies) MarshalText() ([]byte, error) {
	if err := p.validate(); err != nil {
		return nil, err
	}
	items := make([]string, 0, len(p.Trusted)+3)
	for _, network := range p.Trusted {
		network = unmap(network)
		if network.IsSingleIP() {
			items = append(items, network.Addr().String())
		} else {
			items = append(items, network.String())
		}
	}
	if p.Unix {
		items = append(items, unixKey)
	}
	if p.Hops != 0 {
		items = append(items, "hops="+strconv.Itoa(p.Hops))
	}
	if p.Header != "" {
		items = append(items, "header="+p.Header)
	}
	return []byte(strings.Join(items, ",")), nil
}

func parseNetwork(item string) (netip.Prefix, error) {
	if item == "" {
		return netip.Prefix{}, errors.New("the item is empty: remove a comma, or write what was to stand there")
	}
	if !strings.Contains(item, "/") {
		addr, err := netip.ParseAddr(item)
		if err != nil {
			return netip.Prefix{}, errors.New(`this is no address: write one such as 192.0.2.7, a network such as 10.0.0.0/8, or "unix" (names are not looked up)`)
		}
		if addr.Zone() != "" {
			return netip.Prefix{}, fmt.Errorf("zones do not matter here: write %s", addr.WithZone(""))
		}
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	network, err := netip.ParsePrefix(item)
	if err != nil {
		return netip.Prefix{}, errors.New("this is no network: write one such as 10.0.0.0/8 or 2001:db8::/32, the length at most 32 for IPv4 and 128 for IPv6, without a zone")
	}
	return unmap(network), checkNetwork(network)
}
