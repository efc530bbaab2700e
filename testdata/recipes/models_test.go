package recipes

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// prompts makes requests for an answer of at most so many tokens, with a prompt of 4000
// bytes.
func prompts(tenant string, maxTokens string) func() *http.Request {
	return as(tenant, "", func() *http.Request {
		body := fmt.Sprintf(`{"max_tokens":%s,"prompt":"`, maxTokens)
		r := httptest.NewRequest("POST", "/completions", strings.NewReader(body+strings.Repeat("x", 4000-len(body)-2)+`"}`))
		r.Header.Set("Content-Type", "application/json")
		return r
	})
}

// A gone client hangs up when the first chunk is written.
type gone struct {
	*httptest.ResponseRecorder
	hangUp func()
}

func (w *gone) WriteString(string) (int, error) {
	w.hangUp()
	return 0, errors.New("broken pipe")
}

// As many streams begin as may run, whatever they reserve.
func TestThreeCompletionsBegin(t *testing.T) {
	rules, _ := completions(tenantKey, nil)
	limit := made(t)(ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules}))
	for i := range 4 {
		r := prompts("acme", "300000")()
		r.ContentLength = 4_000_000
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		if d, err := limit.Take(r.WithContext(ctx)); err != nil || d.Allowed != (i < 3) {
			t.Errorf("stream %d: %+v, %v", i+1, d, err)
		}
	}
}

func TestCompletions(t *testing.T) {
	var chunks []chunk
	var failed error
	rules, handler := completions(tenantKey, func(r *http.Request) (iter.Seq[chunk], error) {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		return func(yield func(chunk) bool) {
			for _, c := range chunks {
				if !yield(c) {
					return
				}
			}
		}, failed
	})
	synctest.Test(t, func(t *testing.T) {
		costs := make(map[string]int64)
		limit := made(t)(ratelimit.New(ratelimit.Config{Limiter: new(algorithms.Memory), Rules: rules, Denied: deny, Settled: func(_ *http.Request, d algorithms.Decision) {
			for _, r := range d.Results {
				costs[r.Check.Rule] = r.Charged
			}
		}}))
		h := limit.Handler(handler)
		cost := func(name string, input, output, budget int64) {
			t.Helper()
			if costs["input"] != input || costs["output"] != output || costs["budget"] != budget {
				t.Errorf("%s: %v, want %d, %d and %d", name, costs, input, output, budget)
			}
			time.Sleep(time.Minute)
		}
		text := chunk{text: strings.Repeat("x", 400)}

		chunks = []chunk{text, text, {last: true, input: 900, output: 210}}
		wants(t, "answers", statuses(h, 20, prompts("a", "4000")), 200, 20) // 4000 each would be 5
		cost("an answer", 900, 210, price(900, 210))

		chunks = []chunk{text, text}
		wants(t, "answers that break off", statuses(h, 10, prompts("a", "4000")), 200, 10)
		cost("an answer that breaks off", 1000, 200, price(1000, 200))
		ctx, hangUp := context.WithCancel(t.Context())
		r := prompts("a", "4000")()
		h.ServeHTTP(&gone{httptest.NewRecorder(), hangUp}, r.WithContext(context.WithValue(ctx, contextKey("tenant"), "a")))
		cost("a client that has gone", 1000, 100, price(1000, 100))
		long := func(bytes int64) *http.Request {
			r := prompts("c", "-1")()
			r.ContentLength = bytes
			return r
		}
		h.ServeHTTP(&gone{httptest.NewRecorder(), hangUp}, long(100_000))
		cost("a client that has gone, with a prompt above what is reserved", 25_000, 100, price(25_000, 100))
		if w := answer(h, long(400_000)); w.Code != 429 {
			t.Errorf("a prompt of 100,000 tokens: %d", w.Code)
		}
		cost("a prompt above what is left", 0, 0, 0)
		if w := answer(h, long(-1)); w.Code != 411 {
			t.Errorf("a prompt of unknown length: %d", w.Code)
		}
		cost("a prompt of unknown length", 0, 0, 0)
		chunks = []chunk{{last: true, input: 1000}}
		wants(t, "an empty answer", statuses(h, 1, prompts("a", "4000")), 200, 1)
		cost("an empty answer", 1000, 0, price(1000, 0))
		chunks = nil
		wants(t, "before the first chunk", statuses(h, 1, prompts("a", "4000")), 200, 1)
		cost("before the first chunk", 1000, 0, price(1000, 0))
		h.ServeHTTP(httptest.NewRecorder(), prompts("a", "4000")().WithContext(context.WithValue(ctx, contextKey("tenant"), "a")))
		cost("a client that has gone before the upstream answers", 1000, 0, price(1000, 0))

		failed = errors.New("overloaded")
		wants(t, "no answer", statuses(h, 150, prompts("a", "4000")), 502, 150)
		cost("no answer", 0, 0, 0)
		failed = nil

		chunks = []chunk{{last: true, input: 1000, output: 100}}
		for _, most := range []string{"-5", "1000000", `"many"`} {
			wants(t, most, statuses(h, 1, prompts("a", most)), 200, 1)
			cost(most, 1000, 100, price(1000, 100))
		}

		// An answer without an end stops when the tokens of the minute are used.
		chunks = make([]chunk, 1000)
		for i := range chunks {
			chunks[i] = text
		}
		w := answer(h, prompts("b", "10")())
		if n := w.Body.Len() / 400; n < 600 || n > 601 {
			t.Errorf("%d chunks of 100 tokens", n)
		}
		wants(t, "then", statuses(h, 1, prompts("b", "10")), 429, 1)
		time.Sleep(time.Minute)

		// 50 dollars are 31 answers of 1.6.
		chunks = []chunk{{last: true, input: 10_000, output: 104_666}}
		for i := range 40 {
			want := 200
			if i > 31 {
				want = 402
			}
			wants(t, fmt.Sprint("answer ", i), statuses(h, 1, prompts("c", "1000")), want, 1)
			time.Sleep(5 * time.Minute)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, rules...).Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Minute) }))
		for range 3 {
			go answer(h, prompts("a", "10")())
		}
		synctest.Wait()
		for range 19 {
			time.Sleep(time.Minute)
			wants(t, "a fourth", statuses(h, 1, prompts("a", "10")), 429, 1)
		}
		time.Sleep(2 * time.Minute)
		wants(t, "after one has ended", statuses(h, 1, prompts("a", "10")), 200, 1)
	})
}

// What a slow stream reserved, and did not use, is not lost to the next one.
func TestSlowCompletions(t *testing.T) {
	rules, handler := completions(tenantKey, func(*http.Request) (iter.Seq[chunk], error) {
		return func(yield func(chunk) bool) {
			time.Sleep(6 * time.Second)
			yield(chunk{last: true, input: 1000, output: 500})
		}, nil
	})
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, rules...).Handler(handler)
		for range 3 {
			go func() {
				for range 20 {
					if w := answer(h, prompts("a", "6000")()); w.Code != 200 {
						t.Errorf("%d: %s", w.Code, w.Body)
					}
				}
			}()
		}
		synctest.Wait()
		time.Sleep(3 * time.Minute)
	})
}
