package keyfunc_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/keyfunc"
)

var errBroken = errors.New("broken")

func always(key string, err error) keyfunc.Key {
	return keyfunc.Func(func(*http.Request) (string, error) { return key, err })
}

func key(s string) keyfunc.Key { return always(s, nil) }

func keys(parts []string) []keyfunc.Key {
	fs := make([]keyfunc.Key, len(parts))
	for i, part := range parts {
		fs[i] = key(part)
	}
	return fs
}

var (
	none   = always("", fmt.Errorf("%w: because", keyfunc.ErrNoKey))
	skip   = always("", keyfunc.ErrSkip)
	broken = always("", errBroken)
	never  = keyfunc.Func(func(*http.Request) (string, error) { panic("called") })
	req    = from("203.0.113.9:4711")
)

func TestJoin(t *testing.T) {
	wantKey(t, keyfunc.Join(key("alice"), key("eu-1")), req, "5:alice,4:eu-1")
	wantKey(t, keyfunc.Join(key("alice")), req, "5:alice")
	wantErr(t, keyfunc.Join(key("alice"), none, never), req, keyfunc.ErrNoKey)
	wantErr(t, keyfunc.Join(key("alice"), skip, never), req, keyfunc.ErrSkip)
	wantErr(t, keyfunc.Join(broken, never), req, errBroken)
	wantErr(t, keyfunc.Join(key("alice"), key("")), req, keyfunc.ErrNoKey)
}

func TestJoinIsInjective(t *testing.T) {
	// Parts that look like the encoding are the ones that could break it.
	part := rapid.OneOf(rapid.StringMatching(`[0-9:,a]{1,8}`), rapid.StringN(1, -1, 40))
	parts := rapid.SliceOfN(part, 1, 4)
	rapid.Check(t, func(t *rapid.T) {
		a := parts.Draw(t, "a")
		b := parts.Draw(t, "b")
		if rapid.Bool().Draw(t, "nest") { // the encoding of b as a part of a
			inner, err := keyfunc.Join(keys(b)...).Resolve(req)
			if err != nil {
				t.Fatal(err)
			}
			a[0] = inner
		}
		ka, errA := keyfunc.Join(keys(a)...).Resolve(req)
		kb, errB := keyfunc.Join(keys(b)...).Resolve(req)
		if errA != nil || errB != nil {
			t.Fatal(errA, errB)
		}
		if (ka == kb) != slices.Equal(a, b) {
			t.Fatalf("%q and %q give %q and %q", a, b, ka, kb)
		}
	})
}

func TestFirst(t *testing.T) {
	wantKey(t, keyfunc.First(key("alice"), never), req, "1:alice")
	wantKey(t, keyfunc.First(none, key("203.0.113.9"), never), req, "2:203.0.113.9")
	wantKey(t, keyfunc.First(key(""), key("a")), req, "2:a")
	wantErr(t, keyfunc.First(none, none), req, keyfunc.ErrNoKey)
	wantErr(t, keyfunc.First(none, skip, never), req, keyfunc.ErrSkip)
	wantErr(t, keyfunc.First(broken, never), req, errBroken)
}

func TestOptional(t *testing.T) {
	wantKey(t, keyfunc.Optional(key("alice")), req, "alice")
	wantErr(t, keyfunc.Optional(none), req, keyfunc.ErrSkip)
	wantErr(t, keyfunc.Optional(key("")), req, keyfunc.ErrSkip)
	wantErr(t, keyfunc.Optional(skip), req, keyfunc.ErrSkip)
	wantErr(t, keyfunc.Optional(broken), req, errBroken)
}

func TestCombinatorsKeepTheirOwnList(t *testing.T) {
	fs := []keyfunc.Key{key("a")}
	join, first := keyfunc.Join(fs...), keyfunc.First(fs...)
	fs[0] = nil
	wantKey(t, join, req, "1:a")
	wantKey(t, first, req, "1:a")
}

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

func TestRequired(t *testing.T) {
	wantKey(t, keyfunc.Required(key("alice"), http.StatusUnauthorized), req, "alice")
	wantErr(t, keyfunc.Required(skip, http.StatusUnauthorized), req, keyfunc.ErrSkip)
	wantErr(t, keyfunc.Required(broken, http.StatusUnauthorized), req, errBroken)
	for _, f := range []keyfunc.Key{
		keyfunc.Required(none, http.StatusUnauthorized),
		keyfunc.Required(key(""), http.StatusUnauthorized),
		// Nothing around it makes another key of a refusal, or none.
		keyfunc.First(keyfunc.Required(none, http.StatusUnauthorized), never),
		keyfunc.Optional(keyfunc.Required(none, http.StatusUnauthorized)),
		keyfunc.Join(key("a"), keyfunc.Required(none, http.StatusUnauthorized)),
		keyfunc.Hashed(keyfunc.Required(none, http.StatusUnauthorized), nil),
		keyfunc.Required(keyfunc.Required(none, http.StatusUnauthorized), http.StatusBadRequest),
	} {
		got, err := f.Resolve(req)
		refused, ok := errors.AsType[*keyfunc.StatusError](err)
		if got != "" || !ok || refused.Status != http.StatusUnauthorized {
			t.Errorf("got %q, %v", got, err)
		}
		if errors.Is(err, keyfunc.ErrNoKey) || errors.Is(err, keyfunc.ErrSkip) {
			t.Errorf("%v may be passed over", err)
		}
	}
	_, err := keyfunc.Required(none, http.StatusBadRequest).Resolve(req)
	if want := "keyfunc: refused with status 400: keyfunc: no key: because"; err == nil || err.Error() != want {
		t.Errorf("got error %v, want %s", err, want)
	}
}
