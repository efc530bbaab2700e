package keyfunc_test

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/seed75154129/ratelimit/keyfunc"
)

func TestHeader(t *testing.T) {
	f := keyfunc.Header("x-device")
	wantKey(t, f, with("X-Device", "a, b"), "a, b")
	wantKey(t, f, with("X-Device", " a\t"), "a")
	for name, lines := range map[string][]string{
		"missing":              nil,
		"empty":                {""},
		"blank":                {" \t"},
		"several header lines": {"a", "b"},
		"several equal lines":  {"a", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			wantErr(t, f, with("X-Device", lines...), keyfunc.ErrNoKey)
		})
	}
}

func TestAPIKeyIsHashed(t *testing.T) {
	const secret = "s3cr3t-s3cr3t-s3cr3t"
	digest := sha256.Sum256([]byte(secret))
	want := "apikey:" + base64.RawURLEncoding.EncodeToString(digest[:16])
	wantKey(t, keyfunc.APIKey("X-API-Key"), with("X-API-Key", secret), want)
	wantKey(t, keyfunc.APIKey("X-API-Key"), with("X-API-Key", " "+secret+"\t"), want)

	key := mustKey(t, keyfunc.APIKey("X-API-Key"), with("X-API-Key", strings.Repeat(secret, 10_000)))
	if len(key) != len("apikey:")+22 || strings.Contains(key, secret) {
		t.Errorf("got %q", key)
	}
}

func TestAPIKeyReadsTheBearerTokenHoweverTheSchemeIsSpelt(t *testing.T) {
	f := keyfunc.APIKey("authorization")
	want := mustKey(t, keyfunc.APIKey("X-API-Key"), with("X-API-Key", "token"))
	for _, line := range []string{"Bearer token", "bearer token", "BEARER   token", "Bearer\ttoken ", "token"} {
		wantKey(t, f, with("Authorization", line), want)
	}
	for _, line := range []string{"Basic token", "Bearertoken", "DPoP token"} {
		if got := mustKey(t, f, with("Authorization", line)); got == want {
			t.Errorf("%q was read as a bearer token", line)
		}
	}
	if got := mustKey(t, keyfunc.APIKey("X-API-Key"), with("X-API-Key", "Bearer token")); got == want {
		t.Error("another header lost its scheme")
	}
}

func TestAPIKeyMissing(t *testing.T) {
	for name, lines := range map[string][]string{
		"missing":              nil,
		"empty":                {""},
		"scheme alone":         {"Bearer"},
		"scheme and blanks":    {"bearer  "},
		"several header lines": {"Bearer a", "Bearer b"},
	} {
		t.Run(name, func(t *testing.T) {
			wantErr(t, keyfunc.APIKey("Authorization"), with("Authorization", lines...), keyfunc.ErrNoKey)
		})
	}
}

func TestAnonymousRequestsCostNoAllocation(t *testing.T) {
	r := from("203.0.113.9:4711")
	for name, f := range map[string]keyfunc.Key{
		"Header":  keyfunc.Header("X-Device"),
		"APIKey":  keyfunc.APIKey("Authorization"),
		"UserID":  ours.UserID("X-User-ID"),
		"Context": keyfunc.Context(userID),
	} {
		if got := testing.AllocsPerRun(100, func() { _, _ = f.Resolve(r) }); got != 0 {
			t.Errorf("%s: %v allocations", name, got)
		}
	}
}
