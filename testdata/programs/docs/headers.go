package docs

import (
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"strings"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/middleware"
)

func gateway(rewrite func(*httputil.ProxyRequest)) http.Handler {
	return &httputil.ReverseProxy{Rewrite: rewrite, ModifyResponse: middleware.ModifyResponse}
}

func ownResponses(limiter algorithms.Limiter, rules []ratelimit.Rule, page *template.Template) ratelimit.Config {
	return ratelimit.Config{
		Limiter: limiter,
		Rules:   rules,
		Denied: func(w http.ResponseWriter, r *http.Request, d ratelimit.Decision) {
			if !strings.HasPrefix(r.URL.Path, "/web/") {
				headers.Deny(w, r, d)
				return
			}
			w.Header().Set("Cache-Control", "no-store")
			w.WriteHeader(headers.Status(d))                   // 429, or 503 if Redis' failure alone denies
			_ = page.Execute(w, w.Header().Get("Retry-After")) // not d.RetryAfter(), which may be a month
		},
		Observe: func(r *http.Request, d ratelimit.Decision) {
			if !d.Allowed {
				slog.InfoContext(r.Context(), "denied", "retry_after", d.RetryAfter())
			}
		},
	}
}

func attemptsLeft(w http.ResponseWriter, r *http.Request) {
	if d, ok := ratelimit.FromContext(r.Context()); ok {
		if login, ok := d.Result("login"); ok {
			_, _ = fmt.Fprintf(w, "%d of %d attempts left", login.Remaining, login.Check.Limit.Quota())
		}
	}
}

var obedient = &http.Client{Transport: new(headers.Transport)}
