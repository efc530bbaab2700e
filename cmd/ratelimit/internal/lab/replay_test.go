package lab

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/cli"
	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/replayed"
)

var nine = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// logOf is a result with a request and a denial in each of these minutes.
func logOf(minutes ...int) *replayed.Result {
	r := &replayed.Result{Version: replayed.Version, Log: "access.log", Rules: []replayed.Rule{{Name: "per-ip", Limit: "1/1m"}}}
	for _, m := range minutes {
		r.Minutes = append(r.Minutes, replayed.Minute{
			Start: nine.Add(time.Duration(m) * time.Minute), Requests: 2, Denied: 1, ByRule: map[string]int64{"per-ip": 1},
		})
		r.Requests, r.Denied = r.Requests+2, r.Denied+1
	}
	return r
}

func TestSummaryAddsUp(t *testing.T) {
	year := make([]int, 0, 366)
	for i := range 366 {
		year = append(year, i*1440+7)
	}
	for name, c := range map[string]struct {
		minutes []int
		step    time.Duration
		bars    int
	}{
		"nothing":         {nil, 0, 0},
		"a minute":        {[]int{5}, time.Minute, 1},
		"with a gap":      {[]int{0, 1, 59}, time.Minute, 60},
		"six hours":       {[]int{0, 359}, time.Minute, 360},
		"and a minute":    {[]int{0, 360}, 2 * time.Minute, 181},
		"a day":           {[]int{0, 700, 1439}, 5 * time.Minute, 288},
		"a year":          {year, 2 * 24 * time.Hour, 183},
		"a clock that is": {[]int{-29_000_000, 0}, 64 * 24 * time.Hour, 315},
	} {
		s := summarize(logOf(c.minutes...))
		if s.Step != c.step.Seconds() || len(s.Bars) != c.bars {
			t.Errorf("%s: %d bars of %g s, want %d of %s", name, len(s.Bars), s.Step, c.bars, c.step)
		}
		var requests, denied, byRule int64
		for i, b := range s.Bars {
			requests, denied, byRule = requests+b.Requests, denied+b.Denied, byRule+b.ByRule["per-ip"]
			if want := s.Start.Add(time.Duration(i) * c.step); !b.Start.Equal(want) {
				t.Errorf("%s: bar %d begins at %s, want %s", name, i, b.Start, want)
			}
		}
		if n := int64(len(c.minutes)); requests != 2*n || denied != n || byRule != n {
			t.Errorf("%s: %d requests, %d denied, %d by the rule, of %d minutes", name, requests, denied, byRule, n)
		}
	}
}

func TestWorstMinutesAndClientsAreFew(t *testing.T) {
	r := logOf()
	for i := range 50 {
		r.Minutes = append(r.Minutes, replayed.Minute{Start: nine.Add(time.Duration(i) * time.Minute), Requests: 100, Denied: int64(i % 20)})
	}
	for range 200 {
		r.Clients = append(r.Clients, replayed.Client{Rule: "per-ip", Key: "k"})
	}
	s := summarize(r)
	if len(s.Worst) != maxWorst || len(s.Clients) != maxLimited {
		t.Fatalf("%d minutes, %d clients", len(s.Worst), len(s.Clients))
	}
	if s.Worst[0].Denied != 19 || !s.Worst[0].Start.Equal(nine.Add(19*time.Minute)) || s.Worst[9].Denied < 14 {
		t.Errorf("%+v", s.Worst)
	}
	if quiet := summarize(&replayed.Result{Minutes: []replayed.Minute{{Start: nine, Requests: 5}}}); len(quiet.Worst) != 0 {
		t.Errorf("%+v", quiet.Worst)
	}
}

func TestResultFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "result.json")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := replayed.Write(file, *logOf(1, 2)); err != nil {
		t.Fatal(err)
	}
	file.Close()
	result, err := read(path)
	if err != nil || result.Requests != 4 {
		t.Fatalf("%+v, %v", result, err)
	}
	status, body, _ := ask(t, result, "localhost", "/replay.json")
	var got replay
	if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusOK || got.Log != "access.log" || len(got.Bars) != 2 {
		t.Errorf("%d %s %v", status, body, err)
	}
	if status, body, _ := ask(t, nil, "localhost", "/replay.json"); status != http.StatusNotFound || !strings.Contains(body, "no replay") {
		t.Errorf("%d %s", status, body)
	}

	if err := os.WriteFile(path, []byte(`{"version": 9}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, c := range map[string]struct {
		status int
		args   []string
	}{
		"version 9; this program reads version 1; ratelimit replay -o writes such a file\n": {1, []string{"-result", path}},
		"no such file":             {1, []string{"-result", path + ".not"}},
		"is a directory":           {1, []string{"-result", t.TempDir()}},
		"-addr \"nowhere\": ":      {1, []string{"-addr", "nowhere"}},
		"not defined: -x\nusage: ": {2, []string{"-x"}},
		`unexpected argument "a"`:  {2, []string{"a"}},
	} {
		var stdout, stderr strings.Builder
		if status := Command.Execute(cli.Streams{Out: &stdout, Err: &stderr}, c.args); status != c.status || stdout.Len() > 0 || !strings.Contains(stderr.String(), want) {
			t.Errorf("%q: %d, %s, want %d, %s", c.args, status, &stderr, c.status, want)
		}
	}
}
