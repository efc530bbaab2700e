package headers_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/headers"
	"github.com/seed75154129/ratelimit/internal/field"
)

// Behind a reverse proxy, an upstream that limits too sends the same fields. They
// are moved into the response's header, in place of ours or beside them, and the
// Writer is called again. What results is one line of each field, the tighter.
func TestWritersMergeAnUpstream(t *testing.T) {
	const (
		epoch, delta  = "5 3 1795000043", "5 3 42"
		policy, limit = `"login";q=5;w=60`, `"login";r=3;t=42`
	)
	type lines = map[string][]string
	one := func(limit, remaining, reset string) lines {
		return lines{field.XLimit: {limit}, field.XRemaining: {remaining}, field.XReset: {reset}}
	}
	for name, c := range map[string]struct {
		upstream      lines
		epoch, delta  string // what XRateLimit and XRateLimitDelta make of it; "" means ours
		policy, limit string // what IETFDraft11 makes of it
	}{
		"nothing":                 {},
		"the same":                {upstream: lines{field.XLimit: {"5"}, field.XRemaining: {"3"}, field.XReset: {"42"}, field.Policy: {policy}, field.RateLimit: {limit}}},
		"X, more left":            {upstream: one("9", "4", "1795000099")},
		"X, fewer left":           {upstream: one("9", "2", "1795000010"), epoch: "9 2 1795000010", delta: "9 2 10"},
		"X, seconds from now":     {upstream: one("9", "2", "10"), epoch: "9 2 1795000011", delta: "9 2 10"},
		"X, joined":               {upstream: one("9, 8", "6, 1", "10, 20"), epoch: "8 1 1795000021", delta: "8 1 20"},
		"X, two lines":            {upstream: lines{field.XLimit: {"9", "8"}, field.XRemaining: {"6", "1"}, field.XReset: {"10", "20"}}, epoch: "8 1 1795000021", delta: "8 1 20"},
		"X, two lines, malformed": {upstream: lines{field.XLimit: {"9", "8"}, field.XRemaining: {"", "1"}, field.XReset: {"10", "20"}}, epoch: "8 1 1795000021", delta: "8 1 20"},
		"X, two lines, joined":    {upstream: lines{field.XLimit: {"9, 9;w=60", "8"}, field.XRemaining: {"6", "1"}, field.XReset: {"10", "20"}}, epoch: "8 1 1795000021", delta: "8 1 20"},
		"X, two lines, one reset": {upstream: lines{field.XLimit: {"9", "8"}, field.XRemaining: {"6", "1"}, field.XReset: {"90"}}, epoch: "8 1 1795000091", delta: "8 1 90"},
		"X, only remaining":       {upstream: lines{field.XRemaining: {"1"}}, epoch: "5 1 1795000043", delta: "5 1 42"},
		"X, only resets":          {upstream: lines{field.XReset: {"10", "20"}}},
		"lists": {
			upstream: lines{field.Policy: {`"up";q=9;w=10`}, field.RateLimit: {`"up";r=1;t=2`}},
			policy:   policy + `, "up";q=9;w=10`, limit: limit + `, "up";r=1;t=2`},
		"lists, two lines": {
			upstream: lines{field.Policy: {`"a";q=9;w=10`, `"b";q=8`}, field.RateLimit: {`"a";r=1;t=2`, `"b";r=0,"a";r=2`}},
			policy:   `"a";q=9;w=10, "b";q=8, ` + policy, limit: `"a";r=1;t=2, "b";r=0, ` + limit},
		"lists, the same name": {
			upstream: lines{field.Policy: {`"login";q=4;w=10`}, field.RateLimit: {`"login";r=2;t=50`}},
			policy:   `"login";q=4;w=10`, limit: `"login";r=2;t=50`},
		"lists, the same name with more": {upstream: lines{field.Policy: {`"login";q=6;w=10`}, field.RateLimit: {`"login";r=4;t=50`}}},
		"lists, one line malformed":      {upstream: lines{field.Policy: {`"a";q=9`, `9;w=10`}, field.RateLimit: {`"a";r=0`, `?`}}},
	} {
		for writer, w := range map[string]struct {
			write headers.Writer
			x     string
			lists bool
		}{
			"XRateLimit":      {headers.XRateLimit, cmp.Or(c.epoch, epoch), false},
			"XRateLimitDelta": {headers.XRateLimitDelta, cmp.Or(c.delta, delta), false},
			"IETFDraft11":     {headers.IETFDraft11, "", true},
			"All":             {headers.All(headers.XRateLimit, headers.IETFDraft11), cmp.Or(c.epoch, epoch), true},
		} {
			for _, beside := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/beside=%v", name, writer, beside), func(t *testing.T) {
					h := http.Header{}
					w.write(h, ours)
					for name := range maps.Clone(h) {
						if lines := c.upstream[name]; beside || len(lines) == 0 {
							h[name] = append(h[name], lines...)
						} else {
							h[name] = lines
						}
					}
					w.write(h, ours)
					for name, lines := range h {
						if len(lines) != 1 {
							t.Errorf("%s: %q", name, lines)
						}
					}
					if got := strings.Join(x(h), " "); got != w.x {
						t.Errorf("got %s, want %s", got, w.x)
					}
					if got, want := members(h[field.Policy]), members([]string{cmp.Or(c.policy, policy)}); w.lists && !slices.Equal(got, want) {
						t.Errorf("got %q, want %q", got, want)
					}
					if got, want := members(h[field.RateLimit]), members([]string{cmp.Or(c.limit, limit)}); w.lists && !slices.Equal(got, want) {
						t.Errorf("got %q, want %q", got, want)
					}
				})
			}
		}
	}
}

// members are the items of a list without commas in names, sorted.
func members(lines []string) []string {
	return slices.Sorted(strings.SplitSeq(strings.Join(lines, ", "), ", "))
}

// What field names is what we write, no less and no more.
func TestAllFieldsAreListed(t *testing.T) {
	h := http.Header{}
	write := headers.Jitter(time.Second, headers.All(headers.XRateLimit, headers.XRateLimitDelta, headers.IETFDraft11, headers.None))
	write(h, decision(denied(login(0), time.Second)))
	written := slices.Sorted(maps.Keys(h))
	limits := field.Limits()
	all := append(limits[:], field.RetryAfter)
	if listed := slices.Sorted(slices.Values(all)); !slices.Equal(written, listed) {
		t.Errorf("written: %q, listed: %q", written, listed)
	}
	for _, name := range all {
		if name != http.CanonicalHeaderKey(name) {
			t.Errorf("%s is not canonical", name)
		}
	}
}

// Reading what a hostile upstream sends takes a bounded time: long fields are
// ignored, and nothing is read twice.
func TestHostileListsAreBounded(t *testing.T) {
	for name, n := range map[string]int{"long": 1 << 20, "as long as is read": 500} {
		lists := strings.Repeat(`"a";r=1,`, n) + `"b";r=0`
		h := http.Header{
			field.RateLimit:  {lists},
			field.XLimit:     {"1"},
			field.XRemaining: {strings.Repeat("0,", 4*n)},
			field.XReset:     {strings.Repeat("soon,", n)},
		}
		headers.All(headers.XRateLimit, headers.IETFDraft11)(h, ours)
		resp := http.Response{Header: h}
		headers.RetryAfter(&resp)
		want := []string{"5", "3", "1795000043"}
		if n == 500 {
			want = []string{"1", "0", "1795000043"}
		}
		if got := x(h); !slices.Equal(got, want) {
			t.Errorf("%s: %.100q", name, got)
		}
		if got := h[field.RateLimit]; len(got) != 1 || strings.Contains(got[0], `"b"`) != (n == 500) || !strings.HasSuffix(got[0], `"login";r=3;t=42`) {
			t.Errorf("%s: %.100q", name, got)
		}
	}
}
