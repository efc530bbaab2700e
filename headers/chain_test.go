package headers_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/headers"
)

// ours has 3 of 5 units left until the Unix second 1795000043.
var ours = decision(login(3))

func TestTheTighterXRateLimitStays(t *testing.T) {
	mine := []string{"5", "3", "1795000043"}
	for name, c := range map[string]struct{ there, want []string }{
		"as many, for longer":          {[]string{"9", "3", "1795000044"}, []string{"9", "3", "1795000044"}},
		"as many, as long":             {[]string{"5", "3", "1795000043"}, mine},
		"as many, not so long":         {[]string{"9", "3", "1795000042"}, mine},
		"a reset that has passed":      {[]string{"9", "2", "1794999990"}, []string{"9", "2", "1794999990"}},
		"seconds from now":             {[]string{"9", "3", "60"}, []string{"9", "3", "1795000061"}},
		"seconds from now, not so far": {[]string{"9", "3", "41"}, mine},
		"milliseconds":                 {[]string{"9", "2", "1795000001500"}, []string{"9", "2", "1795000002"}},
		"a date":                       {[]string{"9", "2", "2026-11-20T10:00:00Z"}, []string{"9", "2", "1795168800"}},
		"an HTTP date":                 {[]string{"9", "2", "Fri, 20 Nov 2026 10:00:00 GMT"}, []string{"9", "2", "1795168800"}},
		"with a window, as Envoy":      {[]string{"9, 9;w=60", "2", "1"}, []string{"9", "2", "1795000002"}},
		"fractions":                    {[]string{"9.0", "2.9", "1.5"}, []string{"9", "2", "1795000002"}},
		"joined, one malformed":        {[]string{"9, 8", "two, 2", "1795000009, 1795000008"}, []string{"8", "2", "1795000008"}},
		"joined, one limit":            {[]string{"9", "4, 2", "1795000009, 1795000008"}, []string{"9", "2", "1795000008"}},
		"joined, resets of nobody":     {[]string{"9", "2", "1795000009, 1795000008"}, []string{"9", "2", "1795000009"}},
		"Go's duration":                {[]string{"9", "2", "20s"}, []string{"9", "2", "1795000021"}},
		"an RFC 1123 date in UTC":      {[]string{"9", "2", "Fri, 20 Nov 2026 10:00:00 UTC"}, []string{"9", "2", "1795168800"}},
		"no limit":                     {[]string{"", "2", "1795000001"}, []string{"5", "2", "1795000001"}},
		"no remaining":                 {[]string{"9", "", "1795000001"}, mine},
		"no reset":                     {[]string{"9", "2", ""}, []string{"9", "2", "1795000043"}},
		"a limit that is no number":    {[]string{"nine", "2", "1795000001"}, []string{"5", "2", "1795000001"}},
		"not a number":                 {[]string{"9", "two", "1795000001"}, mine},
		"negative":                     {[]string{"9", "-1", "1795000001"}, mine},
		"a reset that is no time":      {[]string{"9", "2", "soon"}, []string{"9", "2", "1795000043"}},
		"as many, no reset":            {[]string{"9", "3", "soon"}, mine},
		"more, no reset":               {[]string{"9", "4", "soon"}, mine},
		"a reset in years":             {[]string{"9", "2", "150933900"}, []string{"9", "2", "1795000043"}},
		"more than 4 KiB":              {[]string{"9", "2" + strings.Repeat(",2", 2048), "1795000001"}, mine},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			for i, field := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
				if c.there[i] != "" {
					h.Set(field, c.there[i])
				}
			}
			headers.XRateLimit(h, ours)
			if got := x(h); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func x(h http.Header) []string {
	return slices.Concat(h.Values("X-RateLimit-Limit"), h.Values("X-RateLimit-Remaining"), h.Values("X-RateLimit-Reset"))
}

// How one line is read, is in [FuzzMerge].
func TestDraft11ListsAreMerged(t *testing.T) {
	const minePolicy, mineLimit = `"login";q=5;w=60`, `"login";r=3;t=42`
	for name, c := range map[string]struct {
		policy, limit         []string
		wantPolicy, wantLimit string
	}{
		"several lines, spaces and parameters": {
			[]string{`"a"; q=9; w=10;acme-burst=2.5 ,"b";q=1;qu="content-bytes"`, `"c";pk=:YQ==:;q=7;x;y=?0;z=tok/en;d=@1;s=%"%c3%a9"`}, []string{` "b";r=0 `},
			`"a";q=9;w=10;acme-burst=2.5, "b";q=1;qu="content-bytes", "c";pk=:YQ==:;q=7;x;y=?0;z=tok/en;d=@1;s=%"%c3%a9", ` + minePolicy, `"b";r=0, ` + mineLimit},
		"a name twice":                       {[]string{`"a";q=3, "a";q=2, "a";q=9`}, nil, `"a";q=2, ` + minePolicy, mineLimit},
		"a parameter twice":                  {nil, []string{`"a";r=9;r=1`, `"a";r=2`}, minePolicy, `"a";r=1, ` + mineLimit},
		"a parameter twice, and other types": {nil, []string{`"a";r;r=2;t="x";t=4`, `"a";r=2;t=9;pk=:Zg==:`}, minePolicy, `"a";r=2;t=9;pk=:Zg==:, ` + mineLimit},
		"one line malformed":                 {[]string{`"a";q=1`, `"b";q`}, []string{`"a";r=1`, `?`}, minePolicy, mineLimit},
		"more than 4 KiB":                    {[]string{`"a";q=1;x="` + zeros(4096) + `"`}, []string{`"a";r=1`, `"b";r=1;x="` + zeros(4096) + `"`}, minePolicy, mineLimit},
	} {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			for _, line := range c.policy {
				h.Add("RateLimit-Policy", line)
			}
			for _, line := range c.limit {
				h.Add("RateLimit", line)
			}
			headers.IETFDraft11(h, ours)
			if got := h.Values("RateLimit-Policy"); len(got) != 1 || got[0] != c.wantPolicy {
				t.Errorf("RateLimit-Policy: got %q, want %q", got, c.wantPolicy)
			}
			if got := h.Values("RateLimit"); len(got) != 1 || got[0] != c.wantLimit {
				t.Errorf("RateLimit: got %q, want %q", got, c.wantLimit)
			}
		})
	}
}

// TestMergedListsKeepEveryName writes two random decisions into one header.
func TestMergedListsKeepEveryName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		outer, inner := drawDecision(t), drawDecision(t)
		alone, both := http.Header{}, http.Header{}
		headers.IETFDraft11(alone, inner)
		headers.IETFDraft11(both, outer)
		first := both.Clone()
		headers.IETFDraft11(both, inner)

		for _, field := range []func(rapid.TB, http.Header) []listed{policies, limits} {
			want := map[string]int64{} // the fewest units
			for _, item := range field(t, alone) {
				want[item.name] = item.units
			}
			for _, item := range field(t, first) {
				if units, ok := want[item.name]; inner.Allowed && (!ok || item.units < units) {
					want[item.name] = item.units
				}
			}
			got := field(t, both)
			if len(got) != len(want) {
				t.Fatalf("%v after %v and %v", both, first, alone)
			}
			for _, item := range got {
				if units, ok := want[item.name]; !ok || units != item.units {
					t.Errorf("%+v, want %d units", item, units)
				}
			}
		}
	})
}

// FuzzMerge takes lists from elsewhere: each field is read, by Writers and by clients, as
// the grammar of RFC 9651 reads it, or not at all.
func FuzzMerge(f *testing.F) {
	for _, line := range []string{
		`"a";r=1`, `"a"; r=1;t=5 , "b";r=0;pk=:YQ==:`, `"\"";r=1;x=%"%c3%a9";y=@-1;z=*a`, `a;r=1`, `"a";r=01`, `"a";r=1,`, "\"a\"\t;r=1",
		// Of every kind of value, well-formed.
		``, `  `, "  \"a\";r=1 \t,\t\"b\";r=2  ", `"a";r=1,"a";r=2`, `"a";r=1;r=2;t=3;t=4`, `"a";r;r=2;t="x";t=4`, `"";r=0`, `"a \"quoted\", \\ one;r=9";r=1`,
		`"a";r=999999999999999;t=000000000000007`, `"a";r=-0`, `"a";pk=::;r=1`, `"a";acme-burst=-1.125;*x.y_2;b=?0;c=?1;r=1`,
		`"a";d=@-1659578233;s="r=5";k=r/5;l=*!#$%&'*+-.^_|~:r;r=1`, `"a";s=123456789012.123;r=1`,
		`"a";r=0;t=5,"b";r=0;t=60, "c";r=1;t=99`, `"a";r=0;t=0`, `"login";r=2;t=1`, `"login";r=3;t=43`, `"login";r=3`,
		// No items of ours.
		`"a";r=-1`, `"a";r=0;t=-5`, `"a";t=5`, `"a";r=1.5`, `"a";r="1"`, `"a";r=1;r`, `"a";r=1;t`, `"a";r=0;t=5,b;r=1`, `1;r=1`,
		// Malformed.
		`;r=1`, `"a";r=1000000000000000`, `"a";r=1;x=1234567890123.1`, `"a";r=1;x=1.1234`, `("a" "b");r=1`, `,`, `"a";r=1, `, `"a";r=1,,"b";r=1`, `,"a";r=1`, `"a";r=1 "b";r=1`,
		"\t\"a\";r=1", `"a" ;r=1`, `"a";r =1`, `"a";r= 1`, "\"a\";\tr=1", "\"a\";r=1\n", `"`, `"a`, `"a\`, `"a\"`, `"a";`, `"a";r=`, `"a";r=-`, `"a";r=1.`,
		`"a";r=1;x=:`, `"a";r=1;x=:YQ==`, `"a";r=1;x=?`, `"a";r=1;x=@`, `"a";r=1;x=%`, `"a";r=1;x=%"`, `"a";r=1;x=%"a`, `"a";r=1;x=%"%`, `"a";r=1;x=%"%c`, `"a";r=1;x=%"%c3"`,
		`"\a";r=1`, "\"\x7f\";r=1", "\"\x1f\";r=1", `"ü";r=1`, `ü;r=1`, `"a";r=1;x=?2`, `"a";r=1;x=@1.5`, `"a";r=1;x=:?:`, `"a";r=1;x=:a=b:`, `"a";r=1;x=:a:`,
		`"a";r=1;x=%"%C3%BC"`, `"a";r=1;x=%"%zz"`, `"a";r=1;x=%"ü"`, `"a";r=1;x=.5`, `"a";r=1;x=+5`, `"a";r=1;x=--5`, `"a";r=1;x=$`,
		`"a";R=1`, `"a";r=1;1=1`, `"a";r=1;-x`, `"a";r=1;;x`, `"a";r=1;=1`, `"a";r=1;pk=:Zg:`,
		// Of older drafts.
		`100;w=60`, `limit=100, remaining=50, reset=5`, `ip;q=1;w=5`, `ip;r=1;t=5`,
	} {
		f.Add(line)
		f.Add(strings.NewReplacer(";r", ";q", ";t", ";w").Replace(line)) // of the policies
	}
	f.Fuzz(func(t *testing.T, line string) {
		if len(line) > 4<<10 {
			return
		}
		theirs, _ := byGrammar(line, "r", "t")
		wait, ok := headers.RetryAfter(&http.Response{Header: http.Header{"Ratelimit": {line}}})
		if want := longestWait(theirs); ok != (want > 0) || (wait-want).Abs() > want/1e15 {
			t.Errorf("%q: wait %v, %v; want %v", line, wait, ok, want)
		}
		for field, of := range map[string]struct {
			units, seconds string
			mine           listed
		}{
			"Ratelimit":        {"r", "t", listed{name: "login", units: 3, seconds: 42}},
			"Ratelimit-Policy": {"q", "w", listed{name: "login", units: 5, seconds: 60}},
		} {
			h := http.Header{field: {line}}
			headers.IETFDraft11(h, ours)
			theirs, _ := byGrammar(line, of.units, of.seconds)
			got, ok := byGrammar(h.Get(field), of.units, of.seconds)
			want := tightest(append(theirs, of.mine))
			if !ok || len(got) != len(want) {
				t.Fatalf("%s: %q became %q", field, line, h[field])
			}
			for _, item := range got {
				if item != want[item.name] {
					t.Errorf("%s: %q became %q: want %+v", field, line, h[field], want[item.name])
				}
			}
		}
	})
}

func TestADenialReplacesTheLists(t *testing.T) {
	h := http.Header{}
	headers.IETFDraft11(h, decision(result("wide", algorithms.PerHour(1000), 500, time.Hour)))
	headers.IETFDraft11(h, decision(denied(login(0), 5*time.Second)))
	if p, l := h.Values("RateLimit-Policy"), h.Values("RateLimit"); len(p) != 1 || p[0] != `"login";q=5;w=60` || len(l) != 1 || l[0] != `"login";r=0;t=5` {
		t.Errorf("%q and %q", p, l)
	}
	h = http.Header{}
	headers.IETFDraft11(h, decision(login(3)))
	headers.IETFDraft11(h, decision(closed)) // Retry-After will be 1
	if len(h) != 0 {
		t.Errorf("after a denial by what nobody could count: %v", h)
	}
}

func TestUndecidedRulesLeaveWhatIsThere(t *testing.T) {
	h := http.Header{}
	both := headers.All(headers.XRateLimit, headers.IETFDraft11)
	both(h, ours)
	before := h.Clone()
	both(h, decision(open))
	if got, want := fields(h), fields(before); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestTheLaterRetryAfterStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(2 * year) // from 2000 to Unix times above 1e9
		in := func(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }
		for _, c := range []struct {
			there []string
			want  string
		}{
			{[]string{"31"}, "31"}, {[]string{"30"}, "30"}, {[]string{"29"}, "30"}, {[]string{"0"}, "30"},
			{[]string{"040"}, "40"}, {[]string{"40.5"}, "41"},
			{[]string{"-40"}, "30"}, {[]string{"soon"}, "30"}, {[]string{"+40"}, "30"}, {[]string{""}, "30"}, {[]string{}, "30"},
			{[]string{"40", "50"}, "50"}, {[]string{"50", "40"}, "50"}, {[]string{"50, 40"}, "50"}, {[]string{"20", "25"}, "30"}, {[]string{"soon", "40"}, "40"},
			{[]string{in(31 * time.Second)}, "31"},
			{[]string{strconv.FormatInt(time.Now().Unix()+31, 10)}, "31"},
			{[]string{strconv.FormatInt(time.Now().UnixMilli()+31_000, 10)}, "31"},
			{[]string{strconv.FormatInt(time.Now().Unix()-31, 10)}, "30"},
			{[]string{"99999999999"}, "30"}, {[]string{"1m30s"}, "90"},
			{[]string{in(29 * time.Second)}, "30"},
			{[]string{in(-time.Hour)}, "30"},
			{[]string{in(31*time.Second) + ", " + in(45*time.Second) + ",40"}, "45"},
		} {
			h := http.Header{"Retry-After": c.there}
			headers.SetRetryAfter(h, decision(denied(login(0), 29_500*time.Millisecond)))
			if got := h["Retry-After"]; !slices.Equal(got, []string{c.want}) {
				t.Errorf("%q was there: got %q, want %q", c.there, got, c.want)
			}
			h = http.Header{"Retry-After": c.there}
			headers.SetRetryAfter(h, ours)
			if got := h["Retry-After"]; !slices.Equal(got, c.there) {
				t.Errorf("an admitted request changed %q to %q", c.there, got)
			}
		}
		h := http.Header{"Retry-After": {"40"}}
		headers.SetRetryAfter(h, decision(denied(login(0), algorithms.Never)))
		if got, there := h["Retry-After"]; there {
			t.Errorf("where waiting never helps: %q", got)
		}
	})
}

func TestRetryAfterIsNeverEarlyNorASecondLate(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDecision(t)
		var most time.Duration
		if rapid.Bool().Draw(t, "with jitter") {
			most = time.Duration(rapid.Int64Range(1e7, 5e9).Draw(t, "jitter"))
		}
		h := http.Header{}
		headers.Jitter(most, headers.IETFDraft11)(h, d)
		headers.SetRetryAfter(h, d)
		got, there := h["Retry-After"]
		wait := d.RetryAfter()
		if d.Allowed || wait == algorithms.Never {
			if there {
				t.Errorf("Retry-After %q of %+v", got, d)
			}
			return
		}
		seconds, err := strconv.ParseInt(got[0], 10, 64)
		if err != nil || seconds < max(ceil(wait), 1) || seconds > max(ceil(wait)+ceil(most), 1) {
			t.Errorf("Retry-After %q for %s, with up to %s more", got, wait, most)
		}
		for _, item := range limits(t, h) {
			if item.seconds > seconds && wait <= year-most { // what jitter makes of longer ones is not read again
				t.Errorf("%+v ends after Retry-After %d", item, seconds)
			}
		}
	})
}
