package keyfunc

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed75154129/ratelimit/internal/hint"
)

// Header returns a [Key] that is the value of a header, as the client sent it,
// without the blanks around it.
//
// A rule by Header alone limits no client: a client that sends another value with each
// request has a new limit each time. Put a rule by address beside it. For a header that a
// proxy sets, use [Proxies.UserID]. For secrets, use [APIKey] or [Cookie].
//
// The error wraps [ErrNoKey] if the header is missing or empty, and if the request has
// it more than once: another program that reads the header might take a different line.
//
// A name that no header can have is a mistake. So are headers that hold secrets, such
// as Authorization and X-API-Key, headers in which proxies write addresses, such as
// X-Forwarded-For, headers that hold more than the identity of a client, such as Cookie,
// DPoP and Signature-Input, and Host, Content-Length and Transfer-Encoding.
func Header(name string) Key {
	name = http.CanonicalHeaderKey(name)
	return leaf("header:"+name, hint.Traits{Chosen: "a header"}, cmp.Or(checkHeader("Header", name), unfit(name)), headerValue(name), func(value string) (string, error) {
		return plain(trim(value))
	})
}

// headerValue returns a function that returns the only value of a header.
func headerValue(name string) func(*http.Request) (string, error) {
	// Made once: requests without the header may well be most of them.
	missing := fmt.Errorf("%w: no header %q, or an empty one", ErrNoKey, name)
	several := fmt.Errorf("%w: header %q more than once", ErrNoKey, name)
	return func(r *http.Request) (string, error) {
		lines := r.Header.Values(name)
		if len(lines) > 1 {
			return "", several
		}
		if len(lines) == 0 {
			return "", missing
		}
		value := trim(lines[0])
		if value == "" {
			return "", missing
		}
		return value, nil
	}
}

// trim removes the blanks around the value of a header. HTTP/1 servers do so too,
// HTTP/2 servers do not: blanks must not make another key.
func trim(value string) string { return strings.Trim(value, " \t") }

func checkHeader(constructor, name string) error {
	switch {
	case name == "":
		return mistake(constructor, "the name of the header is empty")
	case !isToken(name):
		return mistake(constructor, "%.64q is no name of a header", name)
	case name == "Cookie":
		return mistake(constructor, "Cookie holds all cookies, and each change of one would be another client: use keyfunc.Cookie, in a rule file "+
			`"cookie:NAME", with the name of the session's cookie`)
	case slices.Contains(perRequest, name), strings.HasPrefix(name, "X-Amz-"):
		return mistake(constructor, "%s changes with each request or path, and each value would be another client: "+
			"verify it in middleware in front, and use keyfunc.Context", name)
	}
	return nil
}

// perRequest are headers that hold a signature, a nonce, a time or a chain of hops.
var perRequest = []string{"Dpop", "Signature", "Signature-Input", "X-Forwarded-Client-Cert"}

// unfit says why a header, by its canonical name, is no key.
func unfit(name string) error {
	switch name {
	case forwardedFor, forwarded, "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip":
		return mistake("Header", "any client can write %s: use keyfunc.IP or, behind proxies, keyfunc.Proxies with their networks", name)
	case "Authorization", "Proxy-Authorization", "X-Api-Key", "Api-Key", "Apikey", "X-Auth-Token", "X-Access-Token":
		return mistake("Header", "%s holds a secret, which would be in the store and in logs: use keyfunc.APIKey, in a rule file %q, "+
			"which counts by a hash", name, "apikey:"+name)
	case "Host", "Content-Length", "Transfer-Encoding":
		return mistake("Header", "%s does not say who sends a request, and handlers may not see it: use another header or keyfunc.IP", name)
	}
	return nil
}

// isToken reports whether s is a token (RFC 9110, section 5.6.2).
func isToken(s string) bool {
	const tchar = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	return s != "" && strings.Trim(s, tchar) == ""
}
