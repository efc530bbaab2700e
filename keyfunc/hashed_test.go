package keyfunc_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/keyfunc"
)

func TestHashed(t *testing.T) {
	secret := []byte("0123456789abcdef")
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte("alice"))
	plain := sha256.Sum256([]byte("alice"))

	given := slices.Clone(secret)
	f := keyfunc.Hashed(key("alice"), given)
	clear(given) // it has its own
	wantKey(t, f, req, "hash:"+base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16]))
	wantKey(t, keyfunc.Hashed(key("alice"), nil), req, "hash:"+base64.RawURLEncoding.EncodeToString(plain[:16]))
	if got := mustKey(t, keyfunc.Hashed(key(strings.Repeat("alice", 1<<16)), secret), req); len(got) != 27 {
		t.Errorf("got %q", got)
	}
	if got := mustKey(t, keyfunc.Hashed(key("bob"), secret), req); got == mustKey(t, f, req) {
		t.Error("two users, one key")
	}
	wantErr(t, keyfunc.Hashed(none, secret), req, keyfunc.ErrNoKey)
	wantErr(t, keyfunc.Hashed(key(""), nil), req, keyfunc.ErrNoKey)
	wantErr(t, keyfunc.Hashed(skip, secret), req, keyfunc.ErrSkip)
	wantErr(t, keyfunc.Hashed(broken, secret), req, errBroken)
}
