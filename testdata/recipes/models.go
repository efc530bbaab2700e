package recipes

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"iter"
	"log"
	"net/http"
	"strconv"
	"time"

	"github.com/seed75154129/ratelimit"
	"github.com/seed75154129/ratelimit/keyfunc"
)

// A chunk is a part of an answer. The last chunk says how many tokens were used.
type chunk struct {
	text          string
	last          bool
	input, output int64
}

// price is in millionths of a dollar.
func price(input, output int64) int64 { return 3*input + 15*output }

// completions limits and serves one route, as in mux.Handle("POST /completions", h). config
// has at least the Limiter.
func completions(config ratelimit.Config, tenant keyfunc.Key, upstream func(*http.Request) (iter.Seq[chunk], error)) (http.Handler, error) {
	const most = 18_000 // of 60,000, so that three streams can begin; for the rest there is Add
	input := func(r *http.Request) int64 { return min(max(r.ContentLength, 0)/4+1, most) }
	maxTokens := keyfunc.BodyJSON("max_tokens", 1<<20)
	output := func(r *http.Request) int64 {
		text, _ := maxTokens.Resolve(r) // the handler can still read the body
		n, _ := strconv.ParseInt(text, 10, 32)
		return min(max(cmp.Or(max(n, 0), 4096), 1000), most) // with less than 1000, every few chunks would cost a call to the limiter
	}
	reserve := func(r *http.Request) int64 { return price(input(r), output(r)) }
	minute := ratelimit.PerMinute(60_000) // a window, because a full bucket takes no refund
	config.Rules = []ratelimit.Rule{
		{Name: "requests", Key: tenant, Limit: ratelimit.PerMinute(200)},
		{Name: "streams", Key: tenant, Limit: ratelimit.MaxInFlight(3)},
		{Name: "input", Key: tenant, Limit: minute, CostFor: input},
		{Name: "output", Key: tenant, Limit: minute, CostFor: output},
		{Name: "budget", Key: tenant, Limit: ratelimit.PerMonth(50_000_000, "UTC"), CostFor: reserve},
	}
	limit, err := ratelimit.New(config)
	if err != nil {
		return nil, err
	}
	return limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, out := r.Context(), http.NewResponseController(w)
		settle := func(input, output int64) {
			// All are settled in one command, when the handler has returned.
			if err := errors.Join(ratelimit.Settle(ctx, "input", input), ratelimit.Settle(ctx, "output", output), ratelimit.Settle(ctx, "budget", price(input, output))); err != nil {
				log.Print(err) // such as a wrong name
			}
		}
		refuse := func(text string, status int) {
			settle(0, 0)
			http.Error(w, text, status)
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			refuse("the prompt is too long or not whole", http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		prompt := int64(len(body)+3) / 4
		// From here, a hang-up costs only what Add has counted.
		if errors.Join(ratelimit.Add(ctx, "output", 0), ratelimit.Add(ctx, "input", prompt), ratelimit.Add(ctx, "budget", price(prompt, 0))) != nil {
			refuse("the prompt needs more than is left", http.StatusTooManyRequests)
			return
		}
		answer, err := upstream(r)
		if err != nil {
			if ctx.Err() == nil { // otherwise the client has gone
				refuse("no answer", http.StatusBadGateway)
			}
			return
		}
		for c := range answer {
			if c.last {
				settle(c.input, c.output)
				return
			}
			tokens := int64(len(c.text)+3) / 4
			if errors.Join(ratelimit.Add(ctx, "output", tokens), ratelimit.Add(ctx, "budget", price(0, tokens))) != nil {
				break // no units left
			}
			_ = out.SetWriteDeadline(time.Now().Add(30 * time.Second)) // a client that stops reading has gone
			if _, err := io.WriteString(w, c.text); err != nil || out.Flush() != nil {
				break // the client has gone
			}
		}
		panic(http.ErrAbortHandler) // shows the client that the answer is not whole
	})), nil
}
