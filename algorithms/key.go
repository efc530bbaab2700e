package algorithms

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/seed75154129/ratelimit/internal/step"
)

// maxPart is how long a rule or key may be to stand in a Redis key as it is;
// what is longer is hashed, so that nobody outside chooses how much is stored.
const maxPart = 64

// appendKey appends the Redis key that counts a check, for the reasons in doc.go:
//
//	namespace:{key}:rule:algorithm:period
func appendKey(b []byte, namespace string, c *Check, a *step.Row) []byte {
	b = append(appendRule(b, namespace, c), ':')
	b = append(b, a.Short...)
	if b = append(b, ':'); c.Limit.Calendar != "" {
		return append(b, c.Limit.Calendar...)
	}
	return appendPeriod(b, c.Limit.Period)
}

func appendRule(b []byte, namespace string, c *Check) []byte {
	b = append(append(b, namespace...), ":{"...)
	b = append(appendPart(b, c.Key), "}:"...)
	return appendPart(b, c.Rule)
}

// appendPart appends s as it is if that is short and harmless; otherwise '#'
// and 128 bits of its SHA-256, or just '#' for "". As nothing that starts with
// '#' stands as it is, different parts stay different.
func appendPart(b []byte, s string) []byte {
	switch {
	case s == "":
		return append(b, '#')
	case len(s) <= maxPart && plain(s):
		return append(b, s...)
	}
	sum := sha256.Sum256([]byte(s))
	return base64.RawURLEncoding.AppendEncode(append(b, '#'), sum[:16])
}

// plain reports whether s can stand in a key: not empty, printable ASCII, no
// braces (they end the hash tag).
func plain(s string) bool {
	if s == "" || s[0] == '#' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '{' || c == '}' {
			return false
		}
	}
	return true
}

// validateNamespace reports what is wrong with a namespace.
func validateNamespace(s string) error {
	switch {
	case s == "":
		return errors.New("namespace: required, so that services that share a Redis do not share counts; use the service's name")
	case len(s) > maxPart:
		return fmt.Errorf("namespace: %d bytes; at most %d", len(s), maxPart)
	case !plain(s) || strings.Contains(s, ":"):
		return fmt.Errorf("namespace: %q; use printable ASCII without spaces, colons and braces, not starting with '#'", s)
	}
	return nil
}
