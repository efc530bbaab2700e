package headers

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// Host returns the one spelling of the host that an outgoing request is sent to, as the key
// of [Transport].Checks: "victim.example" for https://Victim.example.:443/. It is in lower
// case, without the dot at the end and without port 80 of http or 443 of https. Another
// port stays, because another server may be there. IP addresses have their canonical form.
//
// A host with a letter outside ASCII has many spellings, so all such hosts share the key "".
// To tell them apart, write them in Punycode (xn--…).
func Host(r *http.Request) string {
	host := strings.TrimRight(strings.ToLower(r.URL.Hostname()), ".")
	if strings.ContainsFunc(host, func(c rune) bool { return c > '~' }) {
		return ""
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		host = addr.Unmap().String()
	}
	port := strings.TrimLeft(r.URL.Port(), "0")
	if port == "" || port == map[string]string{"http": "80", "https": "443"}[r.URL.Scheme] {
		return host
	}
	return net.JoinHostPort(host, port)
}
