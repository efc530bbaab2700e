package keyfunc

import (
	"net/netip"
	"strings"
)

// maxElement is the longest element of Forwarded that is read: for, by and proto,
// and a host as long as names get.
const maxElement = 512

// cutElement cuts a Forwarded list (RFC 7239, section 4) at the comma before its
// last element. It reads from the end, quotes included: what the client wrote
// stands before what the proxies appended, and a quote it left open must not
// swallow that. Where there is no comma within reach, element is longer than
// parseElement takes, or the whole list.
func cutElement(list string) (rest, element string, more bool) {
	stop := max(0, len(list)-maxElement-1)
	for i := len(list) - 1; i >= stop; i-- {
		switch list[i] {
		case ',':
			return list[:i], list[i+1:], true
		case '"':
			i = openingQuote(list, i, stop)
		}
	}
	return "", list, false
}

// openingQuote returns where the quoted string begins that ends at list[end], or
// stop. The opening quote is the one that no backslash escapes.
func openingQuote(list string, end, stop int) int {
	for i := end - 1; i >= stop; i-- {
		if list[i] != '"' {
			continue
		}
		escapes := 0
		for i-escapes-1 >= stop && list[i-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i
		}
		i -= escapes
	}
	return stop
}

// parseElement returns the address of one element of Forwarded. ok is false if
// the element is malformed, too long, or does not say for whom it is exactly
// once, and if that has no address, as "unknown" and "_hidden" have none.
func parseElement(s string) (addr netip.Addr, ok bool) {
	if len(s) > maxElement {
		return netip.Addr{}, false
	}
	found := false
	for more := true; more; {
		var name, value string
		if name, value, s, ok = cutPair(s); !ok {
			return netip.Addr{}, false
		}
		if strings.EqualFold(name, "for") {
			if found {
				return netip.Addr{}, false
			}
			found = true
			if addr, ok = parseNode(value); !ok {
				return netip.Addr{}, false
			}
		}
		if more = s != ""; more {
			if s[0] != ';' {
				return netip.Addr{}, false
			}
			s = s[1:]
		}
	}
	return addr, found
}

// cutPair reads a pair name=value from the start of s, or nothing, since pairs may
// be empty; blanks around it are skipped. The value comes without its quotes.
func cutPair(s string) (name, value, rest string, ok bool) {
	s = strings.TrimLeft(s, " \t")
	if s == "" || s[0] == ';' {
		return "", "", s, true
	}
	name, s, ok = strings.Cut(s, "=")
	if !ok || !isToken(name) || s == "" {
		return "", "", "", false
	}
	if s[0] == '"' {
		if value, s, ok = cutQuoted(s); !ok {
			return "", "", "", false
		}
		return name, value, strings.TrimLeft(s, " \t"), true
	}
	end := strings.IndexAny(s, "; \t")
	if end < 0 {
		end = len(s)
	}
	if !isToken(s[:end]) {
		return "", "", "", false
	}
	return name, s[:end], strings.TrimLeft(s[end:], " \t"), true
}

// cutQuoted reads a quoted string from the start of s, which begins with a quote,
// and resolves its escapes.
func cutQuoted(s string) (value, rest string, ok bool) {
	var unescaped []byte
	for i := 1; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '"':
			if unescaped == nil {
				return s[1:i], s[i+1:], true
			}
			return string(unescaped), s[i+1:], true
		case c == '\\':
			if unescaped == nil {
				unescaped = append(make([]byte, 0, len(s)), s[1:i]...)
			}
			if i++; i == len(s) || isControl(s[i]) {
				return "", "", false
			}
			unescaped = append(unescaped, s[i])
		case isControl(c):
			return "", "", false
		case unescaped != nil:
			unescaped = append(unescaped, c)
		}
	}
	return "", "", false
}

// parseNode returns the address of a node (RFC 7239, section 6): IPv4 as it is,
// IPv6 in brackets, and either with a port, which may be hidden as in ":_web". That
// brackets and colons need quotes is seen to by cutPair: they are in no token.
func parseNode(s string) (netip.Addr, bool) {
	host, port := s, ""
	inner, v6 := strings.CutPrefix(s, "[")
	if v6 {
		var closed bool
		if host, port, closed = strings.Cut(inner, "]"); !closed {
			return netip.Addr{}, false
		}
	} else if i := strings.IndexByte(s, ':'); i >= 0 {
		host, port = s[:i], s[i:]
	}
	if port != "" && !isNodePort(port) {
		return netip.Addr{}, false
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Zone() != "" || addr.Is4() == v6 {
		return netip.Addr{}, false
	}
	return addr.Unmap(), true
}

// isNodePort reports whether s is a colon and a port, or a name for one.
func isNodePort(s string) bool {
	s, ok := strings.CutPrefix(s, ":")
	if hidden, is := strings.CutPrefix(s, "_"); is {
		return hidden != "" && strings.Trim(hidden, tokenLetters+"._-") == ""
	}
	return ok && isPort(s)
}

const tokenLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	for _, c := range []byte(s) {
		if strings.IndexByte("!#$%&'*+-.^_`|~"+tokenLetters, c) < 0 {
			return false
		}
	}
	return s != ""
}

func isControl(c byte) bool { return c < ' ' && c != '\t' || c == 0x7f }
