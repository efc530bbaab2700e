package keyfunc

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed75154129/ratelimit/internal/hint"
)

// APIKey returns a [Key] that stands for the secret in a header: the whole value, or what
// follows the scheme in Authorization and Proxy-Authorization. The secret itself never leaves
// the process: the key is "apikey:" and 128 bits of its SHA-256 in URL-safe base64, 29 bytes
// in all. The hash hides a random secret. A secret that can be guessed, such as a password,
// can be found by hashing guesses. Operators may name a client by its secret or by its key.
//
// A secret has one key, however it is written. The scheme is not a part of it: "Bearer abc",
// "token abc" and "abc" are one key. For Basic, the key stands for the user without the
// password, spelled as by [BodyJSON], so that all guesses of a password are one count.
//
// APIKey does not verify the secret. Unless authentication runs first and turns
// unknown secrets away, a client gets a new limit with each secret it makes up, so
// put a rule by address beside it. A client that can renew its secret, or sign its own
// tokens, has a new limit each time, too: limit it by [Context].
//
// The error wraps [ErrNoKey] if the header is missing, empty or repeated, or if it could
// make many keys of one client:
//
//   - the scheme signs each request: the credentials are parameters, as of Digest, Signature
//     and AWS4-HMAC-SHA256, or have a colon, or the scheme is Negotiate or NTLM
//   - the base64 of Basic or of a JSON Web Token is not canonical, since many programs
//     ignore bits and letters of it
//
// A name that no header can have is a mistake, and so are Cookie, for which there is [Cookie],
// and headers such as DPoP and X-Amz-Date, whose value changes with each request.
func APIKey(header string) Key {
	header = http.CanonicalHeaderKey(header)
	identity := token
	if header == "Authorization" || header == "Proxy-Authorization" {
		identity = credentials
	}
	return secret("apikey:", header, "an API key", checkHeader("APIKey", header), headerValue(header), identity)
}

// Cookie returns a [Key] that stands for the value of one cookie, such as a session's, as
// [http.Request.Cookie] returns it. The key is "cookie:" and a hash, as [APIKey] makes it.
//
// Cookie does not verify the value. A client that makes up values, or starts sessions, has a
// new limit with each, so put a rule by address beside it. If a session is verified in front,
// a key by its user is better: use [Context].
//
// The error wraps [ErrNoKey] if the cookie is missing or empty, if the request has it more
// than once, since programs differ in which they take, or if it is a JSON Web Token whose
// base64 is not canonical. A name that no cookie can have is a mistake.
func Cookie(name string) Key {
	missing := fmt.Errorf("%w: no cookie %q, or an empty one", ErrNoKey, name)
	several := fmt.Errorf("%w: cookie %q more than once", ErrNoKey, name)
	var wrong error
	if !isToken(name) {
		wrong = mistake("Cookie", "%.64q is no name of a cookie", name)
	}
	return secret("cookie:", name, "a cookie", wrong, func(r *http.Request) (string, error) {
		switch cookies := r.CookiesNamed(name); {
		case len(cookies) > 1:
			return "", several
		case len(cookies) == 0 || cookies[0].Value == "":
			return "", missing
		default:
			return cookies[0].Value, nil
		}
	}, token)
}

// secret returns a key that is a hash, behind prefix, of the identity that a secret has.
func secret(prefix, name, chosen string, wrong error, value func(*http.Request) (string, error), identity func(string) (string, error)) *key {
	keyOf := func(value string) (string, error) {
		text, err := identity(value)
		if err != nil {
			return "", err
		}
		return prefix + digest(sha256.Sum256([]byte(text))), nil
	}
	k := leaf(prefix+name, hint.Traits{Chosen: chosen}, wrong, func(r *http.Request) (string, error) {
		text, err := value(r)
		if err == nil {
			text, err = keyOf(text)
		}
		if err != nil && !errors.Is(err, ErrNoKey) {
			err = fmt.Errorf("%w: %s%s: %w", ErrNoKey, prefix, name, err)
		}
		return text, err
	}, func(value string) (string, error) { // never called by a request: clients could write the form of others
		if isStored(prefix, value) {
			return value, nil
		}
		return keyOf(trim(value))
	})
	k.storedOnly(prefix, k.exact)
	return k
}

// credentials returns whom the value of Authorization stands for.
func credentials(value string) (string, error) {
	i := strings.IndexAny(value, " \t")
	if i < 0 {
		i = len(value)
	}
	scheme, rest := strings.ToLower(value[:i]), trim(value[i:])
	switch scheme {
	case "basic":
		return basicUser(rest)
	case "bearer":
		return token(rest)
	case "negotiate", "ntlm":
		return "", fmt.Errorf("credentials of the scheme %s change with each connection: use keyfunc.Context", scheme)
	}
	if rest == "" {
		return token(value)
	}
	if strings.ContainsAny(strings.TrimRight(rest, "="), " \t\",:=") {
		return "", errors.New("the credentials are parameters or a signature, which change with each request: use keyfunc.Context")
	}
	return token(rest)
}

// basicUser returns the user of Basic credentials (RFC 7617).
func basicUser(encoded string) (string, error) {
	plain, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return "", errors.New("the credentials of Basic are not canonical base64")
	}
	user, _, ok := strings.Cut(string(plain), ":")
	if !ok {
		return "", errors.New("the credentials of Basic have no colon")
	}
	return account(user)
}

// objects are the beginnings of JSON objects in base64: of {" and of { with a blank.
var objects = []string{"eyJ", "eyA", "ewo", "ew0", "ewk"}

// token returns a secret that has one spelling. Programs that read a JSON Web Token often
// ignore the last bits of its base64, and letters that are none of it.
func token(secret string) (string, error) {
	if secret == "" {
		return "", errors.New("the value is empty")
	}
	if len(secret) > 3 && slices.Contains(objects, secret[:3]) && strings.Contains(secret, ".") {
		for part := range strings.SplitSeq(secret, ".") {
			if _, err := base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
				return "", errors.New("a part of the JSON Web Token is not canonical base64")
			}
		}
	}
	return secret, nil
}
