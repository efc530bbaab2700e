package pattern

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// typicalPatterns are those of a service with a limit on what is costly.
var typicalPatterns = []string{
	"POST /auth/login", "POST /auth/register", "POST /auth/reset", "GET /search",
	"/export/{id}", "POST /upload", "GET /files/{path...}", "/admin/",
	"PUT /users/{id}/avatar", "POST /users/{id}/invite",
}

func BenchmarkPattern(b *testing.B) {
	patterns := make([]Pattern, len(typicalPatterns))
	mux := http.NewServeMux()
	for i, s := range typicalPatterns {
		var err error
		if patterns[i], err = Parse(s); err != nil {
			b.Fatal(err)
		}
		mux.Handle(s, http.NotFoundHandler())
	}
	for _, bb := range []struct{ name, method, path string }{
		{"miss", "GET", "/articles/2024/how-to-limit"},
		{"miss/sharing a segment", "POST", "/users/42/friends"},
		{"miss/dot", "GET", "/.well-known/acme-challenge"},
		{"miss/escaped", "GET", "/articles/a%2Fb"},
		{"miss/unclean", "GET", "/articles//x"},
		{"hit/last", "POST", "/users/42/invite"},
	} {
		r := httptest.NewRequest(bb.method, bb.path, nil)
		b.Run(bb.name+"/ours", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				t := TargetOf(r)
				for i := range patterns {
					if patterns[i].Match(&t) {
						break
					}
				}
			}
		})
		b.Run(bb.name+"/ServeMux", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mux.Handler(r)
			}
		})
	}
}
