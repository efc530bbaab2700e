package replay

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/cli"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

const truthRules = `version: 1
rules:
  - {name: fw, key: ip, limit: 12/10s fixed_window}
  - {name: sw, key: ip, limit: 30/20s, costs: {POST /login: 3}}
  - {name: sl, match: [POST /login], key: ip, limit: 4/30s sliding_log, charge_on: [401, 403]}
  - {name: tb, key: [ip, "header:User-Agent"], limit: 10/20s burst 4}
  - {name: lb, match: [GET /slow], key: everyone, limit: 1/2s burst 4 leaky_bucket}
  - {name: dark, key: ip, limit: 2/10s, shadow: true}
`

// A sent is one request of random traffic.
type sent struct {
	after        time.Duration
	client       int
	agent        string
	method, path string
	status       int
}

func traffic(seed uint64, n int) (all []sent) {
	r := rand.New(rand.NewPCG(seed, seed))
	for range n {
		s := sent{after: time.Duration(r.ExpFloat64() * float64(time.Second) / 3).Truncate(time.Millisecond), client: int(6 * r.Float64() * r.Float64()), method: "GET", path: "/", status: 200}
		s.agent = []string{"curl/8", "x y", `"quoted" \ é`}[r.IntN(3)]
		switch r.IntN(4) {
		case 0:
			s.method, s.path, s.status = "POST", []string{"/login", "/login/", "//login", "/%6Cogin"}[r.IntN(4)], []int{200, 401, 403, 499, 500}[r.IntN(5)]
		case 1:
			s.path = "/slow?x=" + s.agent[:1]
		}
		all = append(all, s)
	}
	return all
}

// A replay denies what a server denies that gets the requests at these times: the
// same middleware on a recorder, in fake time.
func TestReplayEqualsAServer(t *testing.T) {
	total := make(map[string]int64)
	for seed := range uint64(8) {
		all := traffic(seed, 600)
		var log strings.Builder
		denied := make(map[string]int64)
		synctest.Test(t, func(t *testing.T) {
			loader := rulefile.Loader{}
			rules, err := loader.Parse("rules", []byte(truthRules))
			if err != nil {
				t.Fatal(err)
			}
			limit, err := ratelimit.New(ratelimit.Config{
				Limiter: new(algorithms.Memory), Rules: rules, DenialLogRate: -1, MaxWaiting: 1 << 20,
				Observe: func(_ *http.Request, d algorithms.Decision) {
					for _, res := range d.Results {
						if !res.HasRoom {
							denied[res.Check.Rule]++
						}
					}
					if !d.Allowed {
						denied[""]++
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Until(time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)))
			for _, s := range all {
				time.Sleep(s.after)
				r := httptest.NewRequest(s.method, strings.ReplaceAll(s.path, " ", "%20"), nil)
				r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", s.client)
				r.Header.Set("User-Agent", s.agent)
				ctx, leave := context.WithCancel(context.Background())
				go limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // some wait for their turn
					if s.status == 499 {
						leave()
					}
					w.WriteHeader(s.status)
				})).ServeHTTP(httptest.NewRecorder(), r.WithContext(ctx))
				synctest.Wait()
				fmt.Fprintf(&log, `{"time":%q,"remote_addr":"192.0.2.%d","request":%q,"status":%d,"user_agent":%q}`+"\n",
					time.Now().Format(time.RFC3339Nano), s.client, s.method+" "+strings.ReplaceAll(s.path, " ", "%20")+" HTTP/1.1", s.status, s.agent)
				context.AfterFunc(t.Context(), leave)
			}
			time.Sleep(time.Hour)
		})
		stdout, result := replays(t, truthRules, log.String(), nil)
		for _, rule := range result.Rules {
			total[rule.Name] += rule.Denied
			if rule.Denied != denied[rule.Name] {
				t.Errorf("seed %d: %s denied %d, a server %d\n%s", seed, rule.Name, rule.Denied, denied[rule.Name], stdout)
			}
		}
		if result.Denied != denied[""] {
			t.Errorf("seed %d: %d requests denied, by a server %d", seed, result.Denied, denied[""])
		}
	}
	for name, denied := range total {
		if denied < 20 {
			t.Errorf("%s denied only %d: that shows little", name, denied)
		}
	}
}

// Overrides end on the log's clock: one that was in force then is, though it has ended by
// now, and one that ended then has.
func TestOverridesEndOnTheLogsClock(t *testing.T) {
	const rules = `version: 1
rules:
  - name: per-ip
    key: ip
    limit: 1/1h fixed_window
    overrides:
      - {client: 192.0.2.1, limit: 3/1h fixed_window, until: 2001-11-20T09:00:30Z}
      - {client: 192.0.2.2, limit: unlimited, until: 2001-11-20@UTC}
      - {client: 192.0.2.3, limit: unlimited}
      - {client: 192.0.2.4, limit: unlimited, until: 2001-11-20T09:00:00Z}
`
	var log strings.Builder
	for _, second := range []int{0, 10, 30} { // until the second has passed, 3 units; then 1
		for client := 1; client <= 4; client++ {
			fmt.Fprintf(&log, `192.0.2.%d - - [20/Nov/2001:09:00:%02d +0000] "GET / HTTP/1.1" 200 9`+"\n", client, second)
		}
	}
	stdout, result := replays(t, rules, log.String(), nil)
	denied := make(map[string]int64)
	for _, c := range result.Clients {
		denied[c.Key] = c.Denied
	}
	if denied["192.0.2.1"] != 1 || denied["192.0.2.4"] != 2 || result.Denied != 3 {
		t.Errorf("denied %v\n%s", denied, stdout)
	}
}

// The smallest limit that is reported denies less than that part of the clients,
// and the limit with one unit less does not.
func TestSmallestLimitsAreTight(t *testing.T) {
	for _, limit := range []string{"5/10s fixed_window", "5/10s", "5/10s sliding_log", "5/10s token_bucket", "7/10s burst 3 gcra", "3/7s burst 2 leaky_bucket"} {
		for seed := range uint64(2) {
			all := traffic(seed, 400)
			r := rand.New(rand.NewPCG(seed, 7))
			var log strings.Builder
			at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
			for _, s := range all {
				at = at.Add(s.after)
				fmt.Fprintf(&log, `{"time":%q,"remote_addr":"192.0.2.%d","method":"GET","path":"/%d","status":200}`+"\n", at.Format(time.RFC3339Nano), r.IntN(1+r.IntN(40)), s.status)
			}
			one := func(limit string) (limited, clients int64, stdout string) {
				stdout, result := replays(t, "version: 1\nrules: [{name: r, key: ip, limit: "+limit+", costs: {GET /401: 2}}]", log.String(), []string{"-under", "10"})
				return result.Rules[0].Limited, result.Rules[0].Clients, stdout
			}
			_, _, stdout := one(limit)
			found := 0
			for line := range strings.Lines(stdout) {
				_, text, ok := strings.Cut(line, "of the clients: ")
				if !ok {
					continue
				}
				found++
				text, _, _ = strings.Cut(text, " (")
				smallest, err := algorithms.ParseLimit(text)
				if err != nil {
					t.Fatal(err)
				}
				if limited, clients, stdout := one(smallest.String()); 10*limited >= clients {
					t.Errorf("%s: %s denies %d of %d\n%s", limit, smallest, limited, clients, stdout)
				}
				if smallest.Burst > 0 {
					smallest.Burst--
				} else {
					smallest.Rate--
				}
				if smallest.Quota() < 2 {
					continue // no limit: a request costs 2
				}
				if limited, clients, stdout := one(smallest.String()); 10*limited < clients {
					t.Errorf("%s: %s denies only %d of %d\n%s", limit, smallest, limited, clients, stdout)
				}
			}
			if found == 0 {
				t.Errorf("%s: none\n%s", limit, stdout)
			}
		}
	}
}

// Lines that are out of order by less than a minute, as servers write them, are
// decided in the order of their times.
func TestLinesOutOfOrder(t *testing.T) {
	type line struct {
		at   time.Time
		text string
	}
	var all []line
	at := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	for _, s := range traffic(3, 600) {
		at = at.Add(s.after)
		all = append(all, line{at, fmt.Sprintf(`{"time":%q,"remote_addr":"192.0.2.%d","method":"GET","path":"/","status":200}`+"\n", at.Format(time.RFC3339Nano), s.client)})
	}
	join := func() (log string) {
		for _, l := range all {
			log += l.text
		}
		return log
	}
	want, _ := replays(t, truthRules, join(), nil)
	r := rand.New(rand.NewPCG(1, 1))
	ended := make(map[string]time.Time)
	for _, l := range all {
		ended[l.text] = l.at.Add(time.Duration(r.Int64N(int64(time.Minute))))
	}
	slices.SortStableFunc(all, func(a, b line) int { return cmp.Compare(ended[a.text].UnixNano(), ended[b.text].UnixNano()) })
	if got, _ := replays(t, truthRules, join(), nil); got != want {
		t.Errorf("in another order\n%s\nwant\n%s", got, want)
	}
}

// BenchmarkMillionLines replays a million lines of a day, in each format.
func BenchmarkMillionLines(b *testing.B) {
	const (
		lines    = 1_000_000
		combined = `192.0.2.%d - user%d [%s] "GET /api/items/%d HTTP/1.1" 200 1234 "https://shop.example/" "Mozilla/5.0 (X11; Linux x86_64)"` + "\n"
	)
	for name, format := range map[string]string{
		"common":   strings.Replace(combined, ` "https://shop.example/" "Mozilla/5.0 (X11; Linux x86_64)"`, "", 1),
		"combined": combined,
		"json":     `{"remote_addr":"192.0.2.%d","user":"user%d","time":"%s","method":"GET","uri":"/api/items/%d","status":200,"bytes":1234,"referer":"https://shop.example/","user_agent":"Mozilla/5.0 (X11; Linux x86_64)"}` + "\n",
	} {
		b.Run(name, func(b *testing.B) {
			log, err := os.Create(filepath.Join(b.TempDir(), "access.log"))
			if err != nil {
				b.Fatal(err)
			}
			w, r := bufio.NewWriter(log), rand.New(rand.NewPCG(1, 1))
			layout := textTime
			if name == "json" {
				layout = time.RFC3339Nano
			}
			for i := range lines {
				fmt.Fprintf(w, format, r.IntN(256), int(10_000*r.Float64()*r.Float64()), nine.Add(time.Duration(i)*(24*time.Hour/lines)).Format(layout), i%1000)
			}
			if err := errors.Join(w.Flush(), log.Close()); err != nil {
				b.Fatal(err)
			}
			rules := filepath.Join(b.TempDir(), "rules.yaml")
			const text = "version: 1\nrules: [{name: per-ip, key: ip, limit: 200/1m}, {name: per-user, key: user, limit: 100/1m token_bucket}, {name: login, match: [POST /login], key: ip, limit: 5/1m}]"
			if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				var stdout strings.Builder
				if status := Command.Execute(cli.Streams{Out: &stdout, Err: os.Stderr}, []string{"-rules", rules, log.Name()}); status != 0 || !strings.HasPrefix(stdout.String(), "1,000,000 requests") {
					b.Fatalf("status %d\n%s", status, &stdout)
				}
			}
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "s/million")
		})
	}
}
