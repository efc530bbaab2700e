package replay

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

const attackRules = "version: 1\nrules: [{name: per-ip, key: ip, limit: 2/1m}, {name: agent, key: \"header:User-Agent\", limit: 1000/1m}]"

// at is a line of a log.
func at(when time.Time, ip int, path string) string {
	return fmt.Sprintf(`192.0.2.%d - - [%s] "GET %s HTTP/1.1" 200 5 "-" "x"`+"\n", ip, when.Format(textTime), path)
}

var nine = time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)

// What is no line of a log is counted and shown, quoted, and ends nothing.
func TestBadLines(t *testing.T) {
	good := at(nine, 1, "/")
	random := make([]byte, 200<<10)
	rand.NewChaCha8([32]byte{}).Read(random)
	for name, c := range map[string]struct {
		line string
		want []string
		bad  int64
	}{
		"megabytes":         {strings.Repeat("a", 5<<20) + "\n", []string{"1 × line too long", `stdin:2: "aaaa`, `a"…`}, 1},
		"megabytes, no end": {good + strings.Repeat("\x00", 3<<20), []string{"1 × line too long", `stdin:3: "\x00`}, 1},
		"binary":            {string(bytes.ReplaceAll(random, []byte("\n"), []byte("x"))) + "\n", []string{"1 × line too long"}, 1},
		"short binary":      {"\x00\x01\xff\x1b[2J\n", []string{"neither the common nor the combined format, nor JSON", `"\x00\x01\xff\x1b[2J"`}, 1},
		"escape codes":      {"\x1b]0;evil\a\n", []string{`"\x1b]0;evil\a"`}, 1},
		"half a line":       {good[:40] + "\n", []string{"neither"}, 1},
		"a bad time":        {strings.Replace(good, "20/Nov", "31/Feb", 1), []string{"1 × no time"}, 1},
		"a year of 9999":    {strings.Replace(good, "2026", "9999", 1), []string{"1 × time out of range"}, 1},
		"before 1970":       {strings.Replace(good, "2026", "1969", 1), []string{"1 × time out of range"}, 1},
		"an open quote":     {good[:55] + "\n", []string{"1 × no request"}, 1},
		"no status":         {good[:60] + "\n", []string{"1 × no status"}, 1},
		"a bad status":      {strings.Replace(good, " 200 ", " 2e2 ", 1), []string{"1 × no status"}, 1},
		"a host's name":     {strings.Replace(good, "192.0.2.1", "evil.example", 1), []string{"the client is no IP address; -field ip=host"}, 1},
		"many of them":      {strings.Repeat("x\n", 5000), []string{"5,000 × neither", "stdin:2:", "stdin:3:", "stdin:4:"}, 5000},
		"JSON, not closed":  {`{"time":` + "\n", []string{"1 × neither"}, 1},
		"JSON, deep":        {strings.Repeat(`{"a":`, 9000) + "\n", []string{"1 × neither"}, 1},
		"JSON, too large":   {`{"time":"2026-11-20T09:00:00Z","ip":"192.0.2.1","method":"GET","path":"/a","status":200,"big":1e400}` + "\n", nil, 0},
		"JSON, no time":     {`{"method":"GET"}` + "\n", []string{"1 × no time"}, 1},
		"TLS to a port that is not": {strings.Replace(good, "GET / HTTP/1.1", `\x16\x03\x01`, 1) + strings.Replace(good, "GET / HTTP/1.1", "", 1) +
			strings.Replace(good, "GET / HTTP/1.1", "PRI * HTTP/2.0", 1) + strings.Replace(good, "GET / HTTP/1.1", "GET /a b HTTP/1.1", 1), []string{"lines without an HTTP request that a handler would see: 4"}, 0},
		"a line that looks like two": {strings.Replace(good, "- - ", `- 192.0.2.9 - - [20/Nov/2026:10:00:00 +0000] \x22GET /forged HTTP/1.1\x22 200 1 `, 1), []string{"4 requests"}, 0},
	} {
		stdout, result := replays(t, attackRules, good+c.line+"\n"+good+good, nil, c.want...)
		if result.Bad != c.bad || numbers(t, result, "per-ip")[1] < 1 {
			t.Errorf("%s: %+v\n%s", name, result, stdout)
		}
		for _, r := range stdout {
			if r != '\n' && (r < ' ' || r == 0x7f) {
				t.Errorf("%s: prints %q\n%s", name, r, stdout)
				break
			}
		}
	}
}

// Keys are what clients sent: they are quoted where they could be more than a key.
func TestKeysCannotForgeLines(t *testing.T) {
	evil := strings.Replace(strings.Repeat(at(nine, 1, "/"), 3), `"x"`, `"a\x1b[2J, 10.0.0.1"`, 3)
	replays(t, "version: 1\nrules: [{name: agent, key: \"header:User-Agent\", limit: 1/1m}]", evil, nil, `"a\x1b[2J, 10.0.0.1" (2 of 3 requests)`)
}

// One wrong time must not make all lines after it too late.
func TestTimesThatJump(t *testing.T) {
	var log, late strings.Builder
	for i := range 300 {
		log.WriteString(at(nine.Add(time.Duration(i)*time.Second), i%7, "/"))
		switch i {
		case 0:
			log.WriteString(at(nine.AddDate(3, 0, 0), 1, "/future"))
		case 100:
			log.WriteString(at(nine.AddDate(0, 0, 2), 1, "/future"))
			log.WriteString(at(nine.AddDate(-1, 0, 0), 1, "/past"))
		case 200:
			log.WriteString(at(nine.Add(-90*time.Second), 1, "/late"))
		}
	}
	replays(t, attackRules, log.String(), nil, "300 requests from 2026-11-20 09:00:00 to 2026-11-20 09:04:59Z",
		"2 × an hour or more ahead of the lines around it", `stdin:2: "2029-11-20T09:00:00Z"`, "2 × out of order by more than a minute", "the latest by 8760h")

	// The first line may be wrong, too.
	replays(t, attackRules, at(nine.AddDate(1, 0, 0), 1, "/")+log.String(), nil, "300 requests from 2026-11-20 09:00:00", "3 × an hour or more ahead")
	// Gaps are none: a quiet night, and lines that are hours apart.
	late.WriteString(at(nine, 1, "/"))
	for i := range 5 {
		late.WriteString(at(nine.Add(time.Duration(i+1)*8*time.Hour), 1, "/"))
	}
	if stdout, result := replays(t, attackRules, late.String(), nil, "6 requests from 2026-11-20 09:00:00 to 2026-11-22 01:00:00Z"); result.Bad != 0 {
		t.Error(stdout)
	}
	// Logs that were joined in the wrong order are not replayed as a flood.
	day := nine.Add(-24 * time.Hour)
	replays(t, attackRules, at(nine, 1, "/")+at(nine, 2, "/")+strings.Repeat(at(day, 1, "/"), 50), nil, "2 requests", "50 × out of order", "give them as several arguments")
}

// Rotated logs and those of several servers are one log, in whatever order they are
// named, packed or not.
func TestSeveralLogs(t *testing.T) {
	dir := t.TempDir()
	var whole strings.Builder
	parts := make(map[string]*bytes.Buffer)
	for i := range 600 {
		line := at(nine.Add(time.Duration(i)*time.Second), i%50, "/")
		whole.WriteString(line)
		name := []string{"access.log.2.gz", "access.log.1", "access.log"}[i/200]
		if i >= 200 && i%3 == 0 {
			name = "other-server.log"
		}
		if parts[name] == nil {
			parts[name] = new(bytes.Buffer)
		}
		parts[name].WriteString(line)
	}
	args := []string{"-rules", file(t, "rules.yaml", attackRules)}
	for name, text := range parts {
		if strings.HasSuffix(name, ".gz") {
			var packed bytes.Buffer
			for half := range bytes.SplitSeq(text.Bytes(), []byte("192.0.2.7")) { // several members, as after cat a.gz b.gz
				w := gzip.NewWriter(&packed)
				if packed.Len() > 0 {
					_, _ = w.Write([]byte("192.0.2.7"))
				}
				_, _ = w.Write(half)
				w.Close()
			}
			text = &packed
		}
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	_, want := replays(t, attackRules, whole.String(), nil)
	status, stdout, stderr, got := runs(t, "", args...)
	if status != 0 || got.Bad != 0 || got.Requests != 600 || fmt.Sprint(got.Rules, got.Minutes, got.Clients) != fmt.Sprint(want.Rules, want.Minutes, want.Clients) {
		t.Errorf("%d\n%s\n%s\n%+v\nwant\n%+v", status, stdout, stderr, got, want)
	}

	// A log that ends in the middle of a packed block is replayed as far as it goes,
	// and the status tells.
	packed, err := os.ReadFile(filepath.Join(dir, "access.log.2.gz"))
	if err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr, got = runs(t, string(packed[:len(packed)-20]), "-rules", args[1], "-")
	if status != 1 || got.Requests < 100 || !strings.Contains(stderr, "stdin: unexpected EOF after line") || !strings.Contains(stdout, "per-ip") {
		t.Errorf("%d, %d requests\n%s\n%s", status, got.Requests, stdout, stderr)
	}
}

// With more clients than are counted one by one, a part of them is, and shares stay
// what they are.
func TestManyClients(t *testing.T) {
	c := clients{most: 1000}
	for round := range int64(2) {
		for i := range 40_000 {
			if found := c.of(fmt.Sprint("client ", i)); found != nil {
				found.requests++
				if i%10 == 0 {
					found.denied = round
				}
			}
		}
	}
	r := rule{clients: c}
	all, limited := r.totals()
	if len(c.all) > 1000 || len(c.all) < 250 || all < 30_000 || all > 50_000 || limited < all/20 || limited > all/5 {
		t.Errorf("%d counted, which stand for %d, %d of them limited", len(c.all), all, limited)
	}
	for key, client := range c.all {
		if client.requests != 2 {
			t.Fatalf("%s: %d requests", key, client.requests)
		}
	}
}

// A log is streamed: fifty thousand lines leave no more behind than five
// thousand of the same clients.
func TestMemoryIsBounded(t *testing.T) {
	retained := func(lines int) uint64 {
		log, to := io.Pipe()
		go func() {
			for i := range lines {
				_, _ = io.WriteString(to, at(nine.Add(time.Duration(i)*10*time.Millisecond), i%100, strings.Repeat("/x", 100)))
			}
			to.Close()
		}()
		p, s := prepared(t, log)
		for s.peek() != nil {
			p.send(s.head, s.plan)
			s.head = nil
		}
		var stats runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&stats)
		runtime.KeepAlive(p)
		runtime.KeepAlive(s)
		return stats.HeapAlloc
	}
	few, many := retained(5_000), retained(50_000)
	if many > few+4<<20 {
		t.Errorf("%d KiB are left after 5,000 lines, %d after 50,000", few>>10, many>>10)
	}
}

// prepared is a replay and its only log.
func prepared(t *testing.T, log io.Reader) (*replay, *source) {
	t.Helper()
	c := config{ruleFile: file(t, "rules.yaml", attackRules), fields: map[string]string{}, zone: time.UTC}
	rules, err := c.loadRules(nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newReplay(rules, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := open("-", log, new(trash))
	if err != nil {
		t.Fatal(err)
	}
	s.plan = newPlan(s.sample, c.wanted(p.rules), nil, time.UTC)
	return p, s
}
