package recipes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
)

// prompts makes requests for an answer of at most so many tokens, with a prompt of 4000
// bytes.
func prompts(tenant string, maxTokens string) func() *http.Request {
	return promptsOf(4000, tenant, maxTokens)
}

func promptsOf(bytes int, tenant string, maxTokens string) func() *http.Request {
	return as(tenant, "", func() *http.Request {
		body := fmt.Sprintf(`{"max_tokens":%s,"prompt":"`, maxTokens)
		r := httptest.NewRequest("POST", "/completions", strings.NewReader(body+strings.Repeat("x", bytes-len(body)-2)+`"}`))
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

// serve serves a request whose handler may break off its answer.
func serve(h http.Handler, w http.ResponseWriter, r *http.Request) (broke bool) {
	defer func() {
		if err := recover(); err != nil && err != http.ErrAbortHandler {
			panic(err)
		} else if err != nil {
			broke = true
		}
	}()
	h.ServeHTTP(w, r)
	return false
}

// As many streams begin as may run, whatever they reserve.
func TestThreeCompletionsBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := make(chan struct{})
		h, err := completions(ratelimit.Config{Limiter: new(algorithms.Memory)}, tenantKey, func(*http.Request) (iter.Seq[chunk], error) {
			<-stop
			return nil, errors.New("no answer")
		})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			r, w := prompts("acme", "300000")(), httptest.NewRecorder()
			r.ContentLength = 4_000_000
			go h.ServeHTTP(w, r)
			synctest.Wait()
			if denied := w.Code == 429; denied != (i == 3) {
				t.Errorf("stream %d: %d %s", i+1, w.Code, w.Body)
			}
		}
		close(stop)
	})
}

func TestCompletions(t *testing.T) {
	var chunks []chunk
	var failed error
	upstream := func(r *http.Request) (iter.Seq[chunk], error) {
		if err := r.Context().Err(); err != nil {
			return nil, err
		}
		if body, err := io.ReadAll(r.Body); err != nil || int64(len(body)) != r.ContentLength && r.ContentLength >= 0 {
			t.Errorf("the upstream reads %d bytes of %d, %v", len(body), r.ContentLength, err)
		}
		return func(yield func(chunk) bool) {
			for _, c := range chunks {
				if !yield(c) {
					return
				}
			}
		}, failed
	}
	synctest.Test(t, func(t *testing.T) {
		costs := make(map[string]int64)
		h, err := completions(ratelimit.Config{Limiter: new(algorithms.Memory), Denied: deny, Settled: func(_ *http.Request, d algorithms.Decision) {
			for _, r := range d.Results {
				costs[r.Check.Rule] = r.Charged
			}
		}}, tenantKey, upstream)
		if err != nil {
			t.Fatal(err)
		}
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
		for range 10 {
			if w := httptest.NewRecorder(); !serve(h, w, prompts("a", "4000")()) || w.Body.Len() != 800 {
				t.Errorf("an answer that breaks off: %d bytes, and looks whole", w.Body.Len())
			}
		}
		cost("an answer that breaks off", 1000, 200, price(1000, 200))
		ctx, hangUp := context.WithCancel(t.Context())
		r := prompts("a", "4000")()
		serve(h, &gone{httptest.NewRecorder(), hangUp}, r.WithContext(context.WithValue(ctx, contextKey("tenant"), "a")))
		cost("a client that has gone", 1000, 100, price(1000, 100))
		serve(h, &gone{httptest.NewRecorder(), hangUp}, promptsOf(100_000, "c", "-1")())
		cost("a client that has gone, with a prompt above what is reserved", 25_000, 100, price(25_000, 100))
		if w := answer(h, promptsOf(400_000, "c", "-1")()); w.Code != 429 {
			t.Errorf("a prompt of 100,000 tokens: %d", w.Code)
		}
		cost("a prompt above what is left", 0, 0, 0)
		chunked := prompts("c", "1000")()
		chunked.ContentLength = -1
		serve(h, &gone{httptest.NewRecorder(), hangUp}, chunked)
		cost("a client that has gone, with a prompt of unknown length", 1000, 100, price(1000, 100))
		for _, most := range []int64{100_000, math.MaxInt64} {
			slow := prompts("c", "1000")()
			slow.ContentLength, slow.Body = most, io.NopCloser(io.MultiReader(slow.Body, iotest.ErrReader(io.ErrUnexpectedEOF)))
			if w := answer(h, slow); w.Code != 400 {
				t.Errorf("a prompt that breaks off: %d", w.Code)
			}
			cost("a prompt that breaks off", 0, 0, 0)
		}
		chunks = []chunk{{last: true, input: 1000}}
		wants(t, "an empty answer", statuses(h, 1, prompts("a", "4000")), 200, 1)
		cost("an empty answer", 1000, 0, price(1000, 0))
		chunks = nil
		serve(h, httptest.NewRecorder(), prompts("a", "4000")())
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
		w := httptest.NewRecorder()
		if broke := serve(h, w, prompts("b", "10")()); !broke || w.Body.Len()/400 < 600 || w.Body.Len()/400 > 601 {
			t.Errorf("%d chunks of 100 tokens", w.Body.Len()/400)
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
		h, err := completions(ratelimit.Config{Limiter: new(algorithms.Memory)}, tenantKey, func(*http.Request) (iter.Seq[chunk], error) {
			time.Sleep(20 * time.Minute)
			return nil, errors.New("overloaded")
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			go answer(h, prompts("a", "10")())
		}
		synctest.Wait()
		for range 19 {
			time.Sleep(time.Minute)
			wants(t, "a fourth", statuses(h, 1, prompts("a", "10")), 429, 1)
		}
		time.Sleep(2 * time.Minute)
		wants(t, "after one has ended", statuses(h, 1, prompts("a", "10")), 502, 1)
	})
}

// What a slow stream reserved, and did not use, is not lost to the next one.
func TestSlowCompletions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := completions(ratelimit.Config{Limiter: new(algorithms.Memory)}, tenantKey, func(*http.Request) (iter.Seq[chunk], error) {
			return func(yield func(chunk) bool) {
				time.Sleep(6 * time.Second)
				yield(chunk{last: true, input: 1000, output: 500})
			}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
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

// Whatever a request says about max_tokens, a tenant gets no more than its minute, and
// the chunk in which that ends.
func TestCompletionsCannotBeEvaded(t *testing.T) {
	for name, change := range cheats {
		synctest.Test(t, func(t *testing.T) {
			sent := 0
			h, err := completions(ratelimit.Config{Limiter: new(algorithms.Memory)}, tenantKey, func(*http.Request) (iter.Seq[chunk], error) {
				return func(yield func(chunk) bool) {
					for more := true; more; {
						sent += 1000
						more = yield(chunk{text: strings.Repeat("x", 4000)})
					}
				}, nil
			})
			if err != nil {
				t.Fatal(err)
			}
			for range 30 {
				for _, most := range []string{"1", `1,"max_tokens":9`, `1,"MAX_TOKENS":9`, "-1", "1e9", `"many"`, "9999999999999999999"} {
					r := promptsOf(400, "acme", most)()
					change(r)
					serve(h, httptest.NewRecorder(), r)
				}
			}
			if sent == 0 || sent > 61_000 {
				t.Errorf("%s: %d tokens in a minute", name, sent)
			}
		})
	}
}
