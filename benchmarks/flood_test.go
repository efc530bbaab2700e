package benchmarks

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
)

// usedUp is a limit per address that a client's first request uses up for
// longer than anything here runs.
var usedUp = algorithms.Limit{Rate: 1, Period: time.Hour}

// BenchmarkFlood is a request of a client that is known to be over its limit per
// address: the whole handler, beside one that only writes the same response, and
// the decision alone.
func BenchmarkFlood(b *testing.B) {
	s := start(b)
	rules := standard()
	rules[0].Limit = usedUp
	ours := limit(b, s.ours, "flood", rules)
	handlers := []contender{{"handler", serving(ours, http.StatusTooManyRequests), &ours}}
	decisions := []contender{{"take", denying(ours.guard), nil}}
	for _, p := range redisPeers(b, s.theirs, layered(usedUp)) {
		handlers = append(handlers, contender{p.name, serving(p.handler, http.StatusTooManyRequests), nil})
		decisions = append(decisions, contender{p.name, deciding(p, false), nil})
	}
	for _, c := range handlers {
		warm(b, ignoring(c.subject))
		warm(b, c.subject)
	}
	handlers = append(handlers, contender{"writing_429", serving(writing(refusal(ours)), http.StatusTooManyRequests), nil})
	b.Run("handler", func(b *testing.B) { compare(b, load{servers: s.all(), timed: inProcess}, handlers) })
	b.Run("decision", func(b *testing.B) { compare(b, load{servers: s.all(), timed: inProcess}, decisions) })
}

// ignoring is a subject whose every answer will do.
func ignoring(s subject) subject {
	return func() func(int) error {
		do := s()
		return func(client int) error {
			_ = do(client)
			return nil
		}
	}
}

// denying is taking for checks of which the first is used up.
func denying(l algorithms.Limiter) subject {
	var all [clients][]algorithms.Check
	for client := range all {
		all[client] = slices.Clone(allChecks[client])
		all[client][0].Limit = usedUp
	}
	return func() func(int) error {
		return func(client int) error {
			d, err := l.Take(context.Background(), all[client]...)
			if err == nil && d.Allowed {
				err = fmt.Errorf("admitted: %+v", d.Results)
			}
			return err
		}
	}
}

// A response is what a client was answered.
type response struct {
	header http.Header
	status int
	body   []byte
}

// refusal is what a handler answers to a client that is over its limit.
func refusal(h http.Handler) response {
	c := newCaller()
	w := recording{caller: c}
	c.client, c.request.RemoteAddr = 0, addrs[0]
	h.ServeHTTP(&w, c.request)
	return response{maps.Clone(c.header), c.status, w.body}
}

type recording struct {
	*caller
	body []byte
}

func (r *recording) Write(p []byte) (int, error) {
	r.body = append(r.body, p...)
	return len(p), nil
}

// writing is the handler that only writes a response: what a denial costs at least.
func writing(r response) http.Handler {
	type field struct{ name, value string }
	var fields []field
	for name, values := range r.header {
		fields = append(fields, field{name, values[0]})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		for _, f := range fields {
			h.Set(f.name, f.value)
		}
		w.WriteHeader(r.status)
		_, _ = w.Write(r.body)
	})
}

// The handler that only writes a denial writes the same one.
func TestWritingADenial(t *testing.T) {
	rules := standard()
	rules[0].Limit = usedUp
	ours := limit(t, start(t).ours, "flood", rules)
	_ = refusal(ours)
	want := refusal(ours)
	got := refusal(writing(want))
	if want.status != http.StatusTooManyRequests || want.header.Get("Retry-After") == "" || len(want.body) == 0 {
		t.Errorf("no denial: %+v", want)
	}
	if got.status != want.status || string(got.body) != string(want.body) || !maps.EqualFunc(got.header, want.header, slices.Equal) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
