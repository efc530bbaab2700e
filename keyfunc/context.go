package keyfunc

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/seed75154129/ratelimit/internal/hint"
)

// Context returns a [Key] that is the user ID that authentication middleware has put into
// the context of the request. user reads the ID from the context. The authentication must
// run before the rate limit.
//
// The error is [ErrNoKey] if user returns false or an empty ID. A nil user is a
// mistake.
func Context(user func(context.Context) (string, bool)) Key {
	missing := fmt.Errorf("%w: no user in the context of the request", ErrNoKey)
	return leaf("context", hint.Traits{}, ifNil("Context", user == nil), func(r *http.Request) (string, error) {
		id, ok := user(r.Context())
		if !ok || id == "" {
			return "", missing
		}
		return id, nil
	}, plain)
}

// ContextAddr returns a [Key] that is the client's address that other middleware has put
// into the context of the request, in the forms of [IP]. With chi, behind one of its
// ClientIPFrom middlewares:
//
//	keyfunc.ContextAddr(middleware.GetClientIPAddr)
//
// That middleware decides which proxies to trust, and must run before the rate limit.
//
// The error is [ErrNoKey] if addr returns the zero Addr. A nil addr is a mistake.
func ContextAddr(addr func(context.Context) netip.Addr) Key {
	missing := fmt.Errorf("%w: no client address in the context of the request", ErrNoKey)
	return leaf("contextaddr", hint.Traits{Address: true}, ifNil("ContextAddr", addr == nil), func(r *http.Request) (string, error) {
		client := addr(r.Context())
		if !client.IsValid() {
			return "", missing
		}
		return ipKey(client.Unmap().WithZone(""), ipv6Bits), nil
	}, addressKey(ipv6Bits))
}

// ifNil is the mistake of a constructor that was given nil.
func ifNil(constructor string, isNil bool) error {
	if isNil {
		return mistake(constructor, "the argument is nil")
	}
	return nil
}
