package keyfunc

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/seed75154129/ratelimit/internal/hint"
)

// Header returns a [Key] that is the value of a header, as the client sent it,
// without the blanks around it.
//
// A rule by Header alone limits no client: a client that sends another value with each
// request has a new limit each time. Put a rule by address beside it. For a header that a
// proxy sets, use [Proxies.UserID]. For secrets, use [APIKey].
//
// The error wraps [ErrNoKey] if the header is missing or empty, and if the request has
// it more than once: another program that reads the header might take a different line.
//
// A name that no header can have is a mistake. So are headers that hold secrets, such
// as Authorization and X-API-Key, headers in which proxies write addresses, such as
// X-Forwarded-For, and Host, Content-Length and Transfer-Encoding.
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
	}
	return nil
}

// unfit says why a header, by its canonical name, is no key.
func unfit(name string) error {
	switch name {
	case forwardedFor, forwarded, "X-Real-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "X-Client-Ip":
		return mistake("Header", "any client can write %s: use keyfunc.IP or, behind proxies, keyfunc.Proxies with their networks", name)
	case "Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key", "Apikey", "X-Auth-Token", "X-Access-Token":
		return mistake("Header", "%s holds a secret, which would be in the store and in logs: use keyfunc.APIKey, in a rule file %q, "+
			"which counts by a hash", name, "apikey:"+name)
	case "Host", "Content-Length", "Transfer-Encoding":
		return mistake("Header", "%s does not say who sends a request, and handlers may not see it: use another header or keyfunc.IP", name)
	}
	return nil
}

// APIKey returns a [Key] that stands for the secret in a header. In "Authorization",
// the secret is the credentials without the scheme "Bearer" (in any case); in
// any other header it is the whole value. The secret itself never leaves the process:
// the key is "apikey:" and 128 bits of its SHA-256 in URL-safe base64, 29 bytes in all.
// The hash hides a random secret. A secret that can be guessed, such as a password, can be
// found by hashing guesses. Operators may name a client by its secret or by its key.
//
// APIKey does not verify the secret. Unless authentication runs first and turns
// unknown secrets away, a client gets a new limit with each secret it makes up, so
// put a rule by address beside it.
//
// The error wraps [ErrNoKey] if the header is missing, empty or repeated, or if
// Authorization is only "Bearer". A name that no header can have is a mistake.
func APIKey(header string) Key {
	header = http.CanonicalHeaderKey(header)
	missing := fmt.Errorf("%w: no credentials in header %q", ErrNoKey, header)
	value := headerValue(header)
	keyOf := func(value string) (string, error) {
		if header == "Authorization" {
			value = cutBearer(value)
		}
		if value == "" {
			return "", missing
		}
		return apiKeyPrefix + digest(sha256.Sum256([]byte(value))), nil
	}
	k := leaf("apikey:"+header, hint.Traits{Chosen: "an API key"}, checkHeader("APIKey", header), func(r *http.Request) (string, error) {
		secret, err := value(r)
		if err != nil {
			return "", err
		}
		return keyOf(secret)
	}, func(value string) (string, error) { // never called by a request: clients could write the form of others
		if isStored(apiKeyPrefix, value) {
			return value, nil
		}
		text, err := keyOf(trim(value))
		if err != nil {
			return "", errors.New("the value is empty")
		}
		return text, nil
	})
	k.storedOnly(apiKeyPrefix, k.exact)
	return k
}

const apiKeyPrefix = "apikey:"

// cutBearer returns the credentials without the scheme, if that is Bearer.
func cutBearer(authorization string) string {
	scheme, credentials := authorization, ""
	if i := strings.IndexAny(authorization, " \t"); i >= 0 {
		scheme, credentials = authorization[:i], strings.TrimLeft(authorization[i:], " \t")
	}
	if strings.EqualFold(scheme, "Bearer") {
		return credentials
	}
	return authorization
}
