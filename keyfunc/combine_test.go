package keyfunc_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
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

func TestUserNamedLikeAnAddressHasAnotherKey(t *testing.T) {
	f := keyfunc.First(keyfunc.Header("X-User"), keyfunc.IP)
	if user, ip := mustKey(t, f, with("X-User", "203.0.113.9")), mustKey(t, f, with("X-User")); user == ip {
		t.Errorf("both have %q", user)
	}
	if user, ip := mustKey(t, f, with("X-User", "2:203.0.113.9")), mustKey(t, f, with("X-User")); user == ip {
		t.Errorf("both have %q", user)
	}
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
