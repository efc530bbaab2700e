//go:build unix

package transport_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// dialTLS connects and waits until the server has sent what it sends unasked:
// session tickets. A connection that was opened in advance has met them too.
func dialTLS(trust *x509.CertPool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(conn, &tls.Config{RootCAs: trust, ServerName: "127.0.0.1"})
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			return nil, err
		}
		if deadline, ok := ctx.Deadline(); ok {
			conn.SetReadDeadline(deadline)
		}
		err = raw.Read(func(fd uintptr) bool {
			n, _, _ := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
			return n > 0
		})
		return secure, errors.Join(err, conn.SetReadDeadline(time.Time{}))
	}
}

// What a TLS server sends after the handshake looks to go-redis like a push
// message of RESP3, for which it waits 50 ms: the whole budget of a decision,
// on each connection that was opened in advance.
func TestRedisOverTLS(t *testing.T) {
	srv := redistest.StartTLS(t)
	addr, trust := srv.Addr, srv.Options().TLSConfig.RootCAs
	const wasted = 40 * time.Millisecond
	for protocol, want := range map[int]bool{0: true, 3: false} {
		fastest := roomy
		for range 8 {
			client := redis.NewClient(algorithms.FailFast(&redis.Options{
				Addr: addr, Dialer: dialTLS(trust), TLSConfig: &tls.Config{RootCAs: trust}, Protocol: protocol,
				DialTimeout: roomy, ReadTimeout: roomy, WriteTimeout: roomy, PoolTimeout: roomy,
			}))
			defer client.Close()
			r := &algorithms.Redis{Client: client, Namespace: "test", Budget: roomy}
			begin := time.Now()
			d, err := r.Take(t.Context(), algorithms.Check{Rule: "r", Key: "k", Limit: perDay(1000)})
			fastest = min(fastest, time.Since(begin))
			if err != nil || !d.Allowed {
				t.Errorf("protocol %d: %+v, %v", protocol, d, err)
			}
			warned := strings.Join(storeOf(r).Warnings(), "\n")
			if strings.Contains(warned, "Protocol is 3 with TLS") == want {
				t.Errorf("protocol %d: warnings %q", protocol, warned)
			}
		}
		if got := fastest < wasted; got != want && !strings.HasPrefix(redis.Version(), "9.22.") { // it does since 9.23
			t.Errorf("protocol %d: the fastest decision on a new connection took %s; faster than %s: %v, want %v", protocol, fastest, wasted, got, want)
		}
	}
}
