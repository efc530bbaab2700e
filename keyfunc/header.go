package keyfunc

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
)

// Header returns a [Func] whose key is the value of a header, as the client sent
// it, without the blanks around it.
//
// Such a rule alone limits nobody: a client that sends another value with each
// request has a new limit each time. Put a rule by address beside it. For a header
// that a proxy sets there is [Proxies.UserID], for secrets [APIKey].
//
// The error wraps [ErrNoKey] if the header is missing or empty, and if it is there
// more than once: whichever line was taken, what reads the header elsewhere might
// take another.
func Header(name string) Func {
	name = http.CanonicalHeaderKey(name)
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
		// HTTP/1 trims, HTTP/2 leaves it to us: blanks must not make another key.
		value := strings.Trim(lines[0], " \t")
		if value == "" {
			return "", missing
		}
		return value, nil
	}
}

// APIKey returns a [Func] whose key stands for the secret in a header: of
// "Authorization" the credentials without the scheme "Bearer", in any case; of any
// other header the whole value. The secret itself never leaves the process: the
// key is "apikey:" and 128 bits of its SHA-256 in URL-safe base64, 29 bytes in all.
// That hides a random secret; one that can be guessed, such as a password, can be
// found again by hashing guesses.
//
// Nothing here verifies the secret. Unless authentication runs first and turns
// unknown ones away, a client gets a new limit with each it makes up, so put a rule
// by address beside it.
//
// The error wraps [ErrNoKey] if the header is missing, empty, a scheme without
// credentials, or there more than once.
func APIKey(header string) Func {
	value := Header(header)
	missing := fmt.Errorf("%w: no credentials in header %q", ErrNoKey, header)
	bearer := http.CanonicalHeaderKey(header) == "Authorization"
	return func(r *http.Request) (string, error) {
		secret, err := value(r)
		if err != nil {
			return "", err
		}
		if bearer {
			secret = cutBearer(secret)
		}
		if secret == "" {
			return "", missing
		}
		return "apikey:" + digest(sha256.Sum256([]byte(secret))), nil
	}
}

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
