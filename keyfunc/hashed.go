package keyfunc

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
)

// minSecret is the shortest secret that Hashed takes: 128 bits.
const minSecret = 16

// Hashed returns a [Key] that is a hash of the key of k: "hash:" and 128 bits in URL-safe
// base64, 27 bytes in all. Use it for personal keys, such as e-mail addresses and user
// names, which should be neither in the store nor in logs. Operators may name a client by
// plain values or by its hash.
//
// With a secret the hash is HMAC-SHA-256: a reader of the store who does not know the
// secret learns nothing about the clients. All instances that share counts need the same
// secret. A new secret starts all counts anew. With a nil secret the hash is SHA-256, which
// hides only what cannot be guessed: hashing a list of addresses finds those in the store.
//
// Errors of k stay as they are. A nil k is a mistake. So is a secret that is not nil and
// has less than 16 bytes, such as the value of an unset variable.
func Hashed(k Key, secret []byte) Key {
	part, hashed := wrapOne("Hashed", k, "")
	if secret != nil && len(secret) < minSecret {
		hashed.mistake = errors.Join(hashed.mistake, mistake("Hashed",
			"the secret has %d bytes: give at least %d random ones, or nil for a plain hash", len(secret), minSecret))
	}
	secret = slices.Clone(secret)
	hash := func(text string) string {
		if secret == nil {
			return hashPrefix + digest(sha256.Sum256([]byte(text)))
		}
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(text))
		return hashPrefix + digest([sha256.Size]byte(mac.Sum(nil)))
	}
	hashed.resolve = func(r *http.Request) (string, error) {
		text, err := part.resolve(r)
		if err != nil {
			return "", err
		}
		return hash(text), nil
	}
	hashed.keys = func(values []string) ([]string, error) {
		if len(values) == 1 && isStored(hashPrefix, values[0]) {
			return values, nil
		}
		texts, err := part.keys(values)
		hashes := make([]string, len(texts))
		for i, text := range texts {
			hashes[i] = hash(text)
		}
		return hashes, err
	}
	hashed.storedOnly(hashPrefix, func(values []string) (string, error) {
		text, err := part.exact(values)
		return hash(text), err
	})
	return hashed
}

const hashPrefix = "hash:"

// digest returns 128 bits of a hash as text.
func digest(sum [sha256.Size]byte) string {
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}
