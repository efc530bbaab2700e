package keyfunc

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
)

// minHashKey is the shortest key that Hashed takes: 128 bits.
const minHashKey = 16

// Hashed returns a [Func] whose key is a hash of the key of f: 128 bits in URL-safe
// base64, 22 bytes in all. Use it where keys are personal, such as e-mail addresses
// and user names, and must not stand in the store or in logs.
//
// With a hash key, the hash is HMAC-SHA-256: who reads the store learns nothing
// about whom it counts without the hash key too. All instances that share counts
// need the same one; another one starts all counts anew. With nil it is SHA-256,
// which hides only what cannot be guessed: hashing a list of addresses finds out
// which of them are there.
//
// Errors of f stay as they are. If f is nil, or the hash key is not nil and has less
// than 16 bytes, as that of an unset variable has, every request gets an error that
// says so and wraps neither [ErrNoKey] nor [ErrSkip].
func Hashed(f Func, key []byte) Func {
	err := check("Hashed", []Func{f})
	if key != nil && len(key) < minHashKey {
		err = errors.Join(err, fmt.Errorf("keyfunc: Hashed: the hash key has %d bytes: give at least %d random ones, or nil for none",
			len(key), minHashKey))
	}
	if err != nil {
		return failing(err)
	}
	key = slices.Clone(key)
	return func(r *http.Request) (string, error) {
		plain, err := call(f, r)
		if err != nil {
			return "", err
		}
		if key == nil {
			return digest(sha256.Sum256([]byte(plain))), nil
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(plain))
		return digest([sha256.Size]byte(mac.Sum(nil))), nil
	}
}

// digest returns 128 bits of a hash as text.
func digest(sum [sha256.Size]byte) string {
	return base64.RawURLEncoding.EncodeToString(sum[:16])
}
