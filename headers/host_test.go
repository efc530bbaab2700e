package headers_test

import (
	"net/http"
	"testing"

	"github.com/seed75154129/ratelimit/headers"
)

// However an address of a user's is spelled, its server has one key.
func TestHostHasOneSpelling(t *testing.T) {
	for want, urls := range map[string][]string{
		"victim.example": {
			"https://victim.example", "https://Victim.Example/", "https://victim.example.", "https://victim.example..:443/a", "http://victim.example:80", "https://victim.example:443/",
			"https://victim.example:", "https://victim.example:0443", "https://u:p@victim.example", "HTTPS://VICTIM.EXAMPLE:443", "https://victim.example:000",
		},
		"victim.example:8080":   {"https://victim.example:8080", "http://VICTIM.example.:08080"},
		"victim.example:443":    {"http://victim.example:443"},
		"k.example":             {"https://K.example"}, // a Kelvin sign, which IDNA maps so, too
		"203.0.113.9":           {"http://203.0.113.9", "http://[::ffff:203.0.113.9]:80", "http://[::FFFF:cb00:7109]", "http://203.0.113.9.:80"},
		"2001:db8::1":           {"http://[2001:db8::1]", "http://[2001:DB8:0:0::0001]:80"},
		"[2001:db8::1]:8080":    {"http://[2001:db8::1]:8080"},
		"xn--bcher-kva.example": {"https://xn--bcher-kva.example", "https://XN--Bcher-KVA.example."},
		"":                      {"https://bücher.example", "https://ｖictim.example", "https://victim。example", "https://\U0001d42fictim.example"},
	} {
		for _, url := range urls {
			r, err := http.NewRequest(http.MethodGet, url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := headers.Host(r); got != want {
				t.Errorf("%s: got %q, want %q", url, got, want)
			}
		}
	}
}
