package keyfunc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
)

// ContextAddr returns a [Func] whose key is the client's address that other
// middleware has put into the context of the request, made the same key as [IP]
// makes of a connection's. With chi, behind one of its ClientIPFrom middlewares:
//
//	keyfunc.ContextAddr(middleware.GetClientIPAddr)
//
// Whom that middleware trusts is its own affair. It has to run before the rate
// limit does.
//
// The error is [ErrNoKey] if addr returns the zero Addr. It is another if addr is
// nil: a mistake, reported on every request.
func ContextAddr(addr func(context.Context) netip.Addr) Func {
	if addr == nil {
		return failing(errors.New("keyfunc: ContextAddr of a nil function"))
	}
	missing := fmt.Errorf("%w: no client address in the context of the request", ErrNoKey)
	return func(r *http.Request) (string, error) {
		client := addr(r.Context())
		if !client.IsValid() {
			return "", missing
		}
		return ipKey(client.Unmap().WithZone(""), 64), nil
	}
}
