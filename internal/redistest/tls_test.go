package redistest

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	s := StartTLS(t, "--maxmemory", "42mb")
	rdb, ctx := s.Client(t), t.Context()
	if pong, err := rdb.Ping(ctx).Result(); err != nil || pong != "PONG" {
		t.Fatalf("PING = %q, %v", pong, err)
	}
	if got := rdb.ConfigGet(ctx, "maxmemory").Val()["maxmemory"]; got != itoa(42<<20) {
		t.Errorf("maxmemory = %s: the argument did not arrive", got)
	}

	ping := func(change func(*redis.Options)) error {
		opt := s.Options()
		change(opt)
		client := redis.NewClient(opt)
		defer func() { _ = client.Close() }()
		return client.Ping(ctx).Err()
	}
	for name, change := range map[string]func(*redis.Options){
		"a pool without the certificate": func(opt *redis.Options) { opt.TLSConfig.RootCAs = x509.NewCertPool() },
		"another name":                   func(opt *redis.Options) { opt.TLSConfig.ServerName = "redis.example" },
	} {
		if _, ok := errors.AsType[*tls.CertificateVerificationError](ping(change)); !ok {
			t.Errorf("%s: %v, want a refused certificate", name, ping(change))
		}
	}
	if err := ping(func(opt *redis.Options) { opt.TLSConfig = nil }); err == nil {
		t.Error("the server answers without TLS")
	}
	if err := ping(func(*redis.Options) {}); err != nil {
		t.Errorf("changed options changed those of later clients: %v", err)
	}

	s.Restart(t) // with the same certificate
	if err := ping(func(*redis.Options) {}); err != nil {
		t.Errorf("after Restart: %v", err)
	}
}

// TestTLSInBubble is about the bubble's clock, which the certificate has to
// be valid by.
func TestTLSInBubble(t *testing.T) {
	t.Parallel()
	s := StartTLS(t)
	synctest.Test(t, func(t *testing.T) {
		if err := s.Client(t).Ping(t.Context()).Err(); err != nil {
			t.Error(err)
		}
	})
}
