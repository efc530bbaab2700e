package keyfunc_test

import (
	"bytes"
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

// basic returns Basic credentials, with the bits of base64 that mean nothing.
func basic(plain string, bits int) string {
	text := []byte(base64.StdEncoding.EncodeToString([]byte(plain)))
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	last := &text[len(bytes.TrimRight(text, "="))-1]
	*last = alphabet[strings.IndexByte(alphabet, *last)+bits]
	return string(text)
}

// One credential is one client, however it is spelled.
func TestAPIKeyHasOneSpelling(t *testing.T) {
	f, jwt := keyfunc.APIKey("authorization"), "eyJhbGciOiJIUzI1NiJ9.e30.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
	for _, lines := range [][]string{
		{"Bearer token", "bearer token", "BEARER   token", "Bearer\ttoken ", "token", "Token token", "TOKEN token", "apikey token", "DPoP token"},
		{"Bearer a|b:c", "bearer a|b:c"},
		{"Bearer dG9rZW4=", "token dG9rZW4="},
		{"Basic " + basic("ada:pw1", 0), "basic " + basic("ada:pw1", 0), "BASIC \t" + basic("ada:guess", 0), "bAsIc " + basic("Ada:p", 0), "Basic " + basic(" ADA :p:w", 0), "Basic " + basic("ada:", 0)},
		{"Basic " + basic("007:pw1", 0), "Basic " + basic("7:guess1", 0)},
		{"Bearer " + jwt, jwt, "token " + jwt},
	} {
		want := mustKey(t, f, with("Authorization", lines[0]))
		for _, line := range lines {
			wantKey(t, f, with("Authorization", line), want)
		}
	}
	for _, line := range []string{
		"Basic", "Basic  ", "Basic !", "Basic " + basic("ada:pw1", 1), "Basic " + basic("ada:pw1", 15), "Basic " + strings.TrimRight(basic("ada:pw1", 0), "="), "Basic " + basic("adapw1", 0) + "==",
		"Basic " + basic("adapwpw", 0), "Basic " + basic(":secret1", 0), "Basic " + basic("a\u200bda:p1", 0), "Basic " + basic("a\x00da:pw1", 0),
		`Digest username="ada", nonce="x", nc=00000002`, "AWS4-HMAC-SHA256 Credential=AKIA/20261127/eu/s3/aws4_request, Signature=ab", `Signature keyId="a",signature="b"`, `Hawk id="a", ts="1"`,
		"OAuth oauth_nonce=1", "Hawk id=a", "AWS AKIA:c2ln", "SharedKey account:c2ln", "Negotiate YII=", "NTLM TlRM", "negotiate", "vapid t=a, k=b",
		"Bearer " + jwt[:len(jwt)-1] + "B", "Bearer " + jwt + "!", "Bearer " + jwt + "=", jwt + "!",
	} {
		wantErr(t, f, with("Authorization", line), keyfunc.ErrNoKey)
	}
	wantErr(t, keyfunc.APIKey("X-Token"), with("X-Token", jwt+"!"), keyfunc.ErrNoKey)
	for _, head := range []string{`{ "alg":"HS256"}`, "{\n\"alg\":\"HS256\"}", "{\r\n\"alg\":\"HS256\"}", "{\t\"alg\":\"HS256\"}"} { // as some issuers write it
		jwt := "Bearer " + base64.RawURLEncoding.EncodeToString([]byte(head)) + jwt[strings.IndexByte(jwt, '.'):]
		mustKey(t, f, with("Authorization", jwt))
		wantErr(t, f, with("Authorization", jwt[:len(jwt)-1]+"B"), keyfunc.ErrNoKey)
	}
	if mustKey(t, f, with("Authorization", "Basic "+basic("ada:pw1", 0))) == mustKey(t, f, with("Authorization", "Basic "+basic("bob:pw1", 0))) {
		t.Error("two users are one client")
	}
	if mustKey(t, keyfunc.APIKey("X-API-Key"), with("X-API-Key", "Bearer token")) == mustKey(t, f, with("Authorization", "Bearer token")) {
		t.Error("another header lost its scheme")
	}
}

// 32 spellings of the scheme and 16 of the password's last bits are one count.
func TestBasicHas512Spellings(t *testing.T) {
	keys := map[string]bool{}
	for spelling := range 32 {
		scheme := []byte("basic")
		for i := range scheme {
			scheme[i] -= byte(spelling >> i & 1 * ('a' - 'A'))
		}
		for bits := range 16 {
			r := with("Authorization", string(scheme)+" "+basic("ada:pw1", bits))
			if user, password, ok := r.BasicAuth(); user != "ada" || password != "pw1" || !ok {
				t.Fatalf("%q is no credential", r.Header)
			}
			if key, err := keyfunc.Required(keyfunc.APIKey("Authorization"), 401).Resolve(r); err == nil {
				keys[key] = true
			}
		}
	}
	if len(keys) != 1 {
		t.Errorf("%d keys, want 1 and refusals", len(keys))
	}
}

func TestCookie(t *testing.T) {
	f := keyfunc.Cookie("session")
	digest := sha256.Sum256([]byte("s3cret"))
	want := "cookie:" + base64.RawURLEncoding.EncodeToString(digest[:16])
	for _, lines := range [][]string{
		{"session=s3cret"}, {"session=s3cret; _ga=1"}, {"_ga=2; session=s3cret"}, {"a=b;; session=s3cret"}, {"_ga=3", "session=s3cret"}, {`session="s3cret"`},
		{"Session=x; session=s3cret"}, {"xsession=a; session=s3cret; session2=b"}, {"%73ession=x; session=s3cret"}, {"session=s3cret ; \x00"},
	} {
		wantKey(t, f, with("Cookie", lines...), want)
		if cookie, err := with("Cookie", lines...).Cookie("session"); err != nil || cookie.Value != "s3cret" {
			t.Errorf("%q: the handler reads %v, %v", lines, cookie, err)
		}
	}
	for _, lines := range [][]string{
		nil, {""}, {"session"}, {"session="}, {"_ga=1"}, {"session=s3cret; session=s3cret"}, {"session=a", "session=s3cret"}, {"session=eyJhIjoxfQ.e30.AB"},
	} {
		wantErr(t, f, with("Cookie", lines...), keyfunc.ErrNoKey)
	}
	if got, err := keysOf(f, "s3cret"); err != nil || got[0] != want {
		t.Errorf("an operator's s3cret: %q, %v", got, err)
	}
	if got, err := keysOf(f, want); err != nil || got[0] != want {
		t.Errorf("an operator's stored form: %q, %v", got, err)
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
