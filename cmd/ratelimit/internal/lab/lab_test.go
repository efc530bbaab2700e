package lab

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/replayed"
	"github.com/seed75154129/ratelimit/internal/simulate"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

// ask sends a request to the lab, as to this host.
func ask(t *testing.T, result *replayed.Result, host, path string) (status int, body string, header http.Header) {
	t.Helper()
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = host
	w := httptest.NewRecorder()
	handler(result).ServeHTTP(w, r)
	return w.Code, w.Body.String(), w.Result().Header
}

// simulated is what the lab answers to a query.
func simulated(t *testing.T, query string) simulation {
	t.Helper()
	status, body, _ := ask(t, nil, "localhost", "/simulate?"+query)
	var s simulation
	if err := json.Unmarshal([]byte(body), &s); status != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %s, %v", query, status, body, err)
	}
	return s
}

func sum[T int | int64](series []T) (n int) {
	for _, x := range series {
		n += int(x)
	}
	return n
}

var everyTraffic = []string{
	"traffic=steady", "traffic=poisson&seed=7", "traffic=bursty&seed=7", "traffic=edges", "traffic=drip",
	"traffic=clients&clients=4&load=2", "traffic=drawn&drawn=0,5,90,3,0,0,80,80",
}

// everyAlgorithm chooses all of them, of which each request takes a while.
var everyAlgorithm = "takes=2.5&atOnce=6&algorithms=" + joined(all)

func joined(algorithms []algorithms.Algorithm) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(algorithms), "[]")), ",")
}

// What is drawn adds up to the totals, and these are the exact log's.
func TestSeriesAddUp(t *testing.T) {
	for _, traffic := range everyTraffic {
		for _, limit := range []string{"", "&rate=7&period=10s&burst=3", "&rate=3&period=30d&burst=1&periods=12", "&rate=1&period=1s&burst=1"} {
			s := simulated(t, everyAlgorithm+"&"+traffic+limit)
			if len(s.Rows) != len(all) || sum(s.Arrivals) != s.Requests || s.Requests == 0 {
				t.Fatalf("%s%s: %d rows, %d of %d arrivals", traffic, limit, len(s.Rows), sum(s.Arrivals), s.Requests)
			}
			for _, r := range s.Rows {
				fail := func(what string, got, want any) {
					t.Errorf("%s%s, %s: %s: %v, want %v", traffic, limit, r.Algorithm, what, got, want)
				}
				n := r.Totals
				if n.Admitted+n.Denied != s.Requests {
					fail("admitted and denied", n.Admitted+n.Denied, s.Requests)
				}
				for what, c := range map[string]struct {
					series []int
					total  int
				}{"admitted": {r.Admitted, n.Admitted}, "denied": {r.Denied, n.Denied}, "false admits": {r.FalseAdmits, n.FalseAdmits}, "false denials": {r.FalseDenials, n.FalseDenials}} {
					if len(c.series) != columns || sum(c.series) != c.total {
						fail(what, sum(c.series), c.total)
					}
				}
				for i := range s.Arrivals {
					if r.Admitted[i]+r.Denied[i] != s.Arrivals[i] {
						fail("a column", r.Admitted[i]+r.Denied[i], s.Arrivals[i])
					}
				}
				if worst := slices.Max(r.Served); worst > n.Worst || r.Algorithm != algorithms.LeakyBucket && worst != n.Worst {
					fail("worst window", worst, n.Worst)
				}
				if wait := slices.Max(r.Wait); wait != n.LongestWait || (wait > 0) != (slices.Max(r.Waiting) > 0) {
					fail("waits", wait, n.LongestWait)
				}
				if slices.Min(r.Remaining) < 0 || slices.Max(r.Remaining) > r.Quota {
					fail("remaining", r.Remaining, r.Quota)
				}
				if r.Algorithm == algorithms.SlidingLog && n.FalseAdmits+n.FalseDenials != 0 {
					fail("the exact log's mistakes", n.FalseAdmits+n.FalseDenials, 0)
				}
				if r.Algorithm != algorithms.LeakyBucket && (n.LongestWait != 0 || slices.Max(r.Waiting) != 0) {
					fail("waits", n.LongestWait, 0)
				}
				if slices.Max(r.AtOnce) != n.AtOnce || n.AtOnce == 0 {
					fail("most at once", slices.Max(r.AtOnce), n.AtOnce)
				}
				if r.Held && (r.Limit != "6 in flight" || n.AtOnce > 6 || int64(n.AtOnce)+slices.Min(r.Remaining) < 6) {
					fail("most at once", n.AtOnce, r.Limit)
				}
				var admitted, denied int
				for _, c := range r.PerClient {
					admitted, denied = admitted+c.Admitted, denied+c.Denied
				}
				if s.Clients > 1 && (len(r.PerClient) != s.Clients || admitted != n.Admitted || denied != n.Denied) {
					fail("clients", r.PerClient, n)
				}
			}
		}
	}
}

// The famous cases come out as everybody says.
func TestKnownAnswers(t *testing.T) {
	s := simulated(t, "rate=100&period=1m&burst=20&load=1&traffic=edges&periods=2&takes=1.5&atOnce=5&algorithms="+joined(all))
	for i, want := range map[int]totals{
		0: {Admitted: 200, Worst: 200, FalseAdmits: 100, AtOnce: 150},
		1: {Admitted: 101, Denied: 99, Worst: 101, FalseAdmits: 1, AtOnce: 100},
		2: {Admitted: 100, Denied: 100, Worst: 100, AtOnce: 100},
		6: {Admitted: 10, Denied: 190, Worst: 10, AtOnce: 5}, // 5 at 59 s, and 5 when they end
	} {
		got := s.Rows[i].Totals
		got.FalseDenials = 0
		if got != want {
			t.Errorf("%s: %+v, want %+v", s.Rows[i].Algorithm, got, want)
		}
	}
	bucket, queue, gcra := s.Rows[3], s.Rows[4], s.Rows[5]
	if bucket.Totals != gcra.Totals || !slices.Equal(bucket.Remaining, gcra.Remaining) {
		t.Error("token_bucket and gcra decide differently")
	}
	if queue.Totals.AtOnce != 3 { // one begins each 0.6 s and takes 1.5 s
		t.Errorf("leaky_bucket: %d at once", queue.Totals.AtOnce)
	}
	if queue.Totals.Admitted != bucket.Totals.Admitted || queue.Totals.LongestWait < 11 || queue.Totals.LongestWait > 12 {
		t.Errorf("leaky_bucket: %+v", queue.Totals) // 20 places, 0.6 s each, the first at once
	}
}

func TestDefaultsAreAWholeScenario(t *testing.T) {
	short := simulated(t, "")
	long := simulated(t, "rate=100&burst=20&period=1m&periods=4&load=1.5&traffic=edges&algorithms=fixed_window,sliding_window,token_bucket,leaky_bucket&seed=9&takes=1&atOnce=20")
	if !reflect.DeepEqual(short, long) {
		t.Error("the empty query is another scenario")
	}
	if a, b := simulated(t, "traffic=poisson&seed=2"), simulated(t, "traffic=poisson&seed=3"); reflect.DeepEqual(a.Arrivals, b.Arrivals) {
		t.Error("the seed changes nothing")
	}
}

func TestMistakesNameTheField(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("1,", maxParts+1), ",")
	for query, want := range map[string]mistake{
		"rate=0":                        {"rate: write a whole number from 1 to 10000", "rate"},
		"rate=":                         {"rate: write a whole number from 1 to 10000", "rate"},
		"rate=1e9":                      {"rate: write a whole number from 1 to 10000", "rate"},
		"burst=99999999999999999999":    {"burst: write a whole number from 1 to 10000", "burst"},
		"periods=1":                     {"periods: write a whole number from 2 to 12", "periods"},
		"clients=51":                    {"clients: write a whole number from 1 to 50", "clients"},
		"takes=0":                       {"takes: write a number from 0.001 to 86400", "takes"},
		"atOnce=0":                      {"atOnce: write a whole number from 1 to 10000", "atOnce"},
		"algorithms=calendar_window":    {`algorithms: there is no "calendar_window"; choose from ["fixed_window" "sliding_window" "sliding_log" "token_bucket" "leaky_bucket" "gcra" "in_flight"]`, "algorithms"},
		"seed=-1":                       {"seed: write a whole number from 0 to 4294967296", "seed"},
		"period=1ms":                    {"period: write a time from 1s to 30d, such as 90s or 1h", "period"},
		"period=31d":                    {"period: write a time from 1s to 30d, such as 90s or 1h", "period"},
		"period=1m+burst+5":             {"period: write a time from 1s to 30d, such as 90s or 1h", "period"},
		"load=NaN":                      {"load: write a number from 0.05 to 10", "load"},
		"load=11":                       {"load: write a number from 0.05 to 10", "load"},
		"algorithms=":                   {`algorithms: there is no ""; choose from ["fixed_window" "sliding_window" "sliding_log" "token_bucket" "leaky_bucket" "gcra" "in_flight"]`, "algorithms"},
		"rat=5":                         {`rat: no such field; choose from ["rate" "burst" "atOnce" "periods" "clients" "seed" "load" "takes" "period" "algorithms" "traffic" "drawn"]`, "rat"},
		"traffic=storm":                 {`traffic: there is no "storm"`, "traffic"},
		"traffic=drawn":                 {"drawn: draw at least one request", "drawn"},
		"traffic=drawn&drawn=1,-1":      {"drawn: write a whole number from 0 to 1000", "drawn"},
		"traffic=drawn&drawn=" + many:   {"drawn: a curve has at most 120 parts", "drawn"},
		"rate=10000&load=10&periods=12": {"load: that is about 1200000 requests; the lab sends at most 50000: lower the rate, the load or the length", "load"},
		"traffic=clients&clients=50&rate=9000&load=1": {"load: that is about 161971 requests; the lab sends at most 50000: lower the rate, the load or the length", "load"},
	} {
		status, body, _ := ask(t, nil, "127.0.0.1:8090", "/simulate?"+query)
		var got mistake
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusBadRequest || got != want {
			t.Errorf("%s: %d %s %v", query, status, body, err)
		}
	}
}

// No scenario is more work than the lab says.
func TestTheMostWorkIsBounded(t *testing.T) {
	for _, traffic := range everyTraffic {
		s, err := parseScenario(values(t, "rate=4000&load=3&periods=4&clients=4&seed=5&"+strings.Replace(traffic, "&load=2", "", 1)))
		if err != nil && strings.Contains(err.Error(), "about") {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		if n := len(traffics[s.traffic](s)); n > 3*maxRequests {
			t.Errorf("%s: %d requests, %.0f expected", traffic, n, s.expected())
		}
	}
}

func values(t *testing.T, query string) url.Values {
	t.Helper()
	v, err := url.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// The code that is shown is the limit that was simulated.
func TestTheCodeIsTheLimit(t *testing.T) {
	for _, period := range []string{"90s", "1h", "1d", "1500ms"} {
		for _, r := range simulated(t, everyAlgorithm+"&load=0.5&traffic=steady&rate=7&burst=3&period="+period).Rows {
			rules, err := new(rulefile.Loader).Parse("copied", []byte(r.YAML))
			if err != nil || rules[0].Limit.String() != r.Limit {
				t.Errorf("%s: %v\n%s", r.Limit, err, r.YAML)
			}
			_, text, _ := strings.Cut(r.Go, `ratelimit.MustParse("`)
			text, _, _ = strings.Cut(text, `")`)
			if limit, err := algorithms.ParseLimit(text); err != nil || limit != rules[0].Limit {
				t.Errorf("%s: %v\n%s", r.Limit, err, r.Go)
			}
		}
	}
}

// One program is compiled; the others differ from it in the limit.
func TestTheCodeCompiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "main.go")
	code := simulated(t, "algorithms=token_bucket").Rows[0].Go
	if err := os.WriteFile(path, []byte(code), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "vet", path).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s\n%s", err, out, code)
	}
}

// Nobody reads a replay, which has clients' addresses, through a name of their
// own, and pages run nothing but their own files.
func TestWhoMayAsk(t *testing.T) {
	for host, want := range map[string]int{
		"localhost": 200, "localhost:8090": 200, "127.0.0.1:8090": 200, "[::1]:8090": 200, "[::1]": 200, "192.0.2.7:80": 200,
		"evil.example": 421, "evil.example:8090": 421, "127.0.0.1.evil.example:8090": 421, "localhost.evil.example": 421, "": 421,
	} {
		for _, path := range []string{"/", "/replay", "/replay.json", "/simulate", "/overload", "/overload.json?seconds=5", "/style.css"} {
			status, body, header := ask(t, &replayed.Result{Version: 1}, host, path)
			if status != want {
				t.Errorf("%s%s: %d %s", host, path, status, body)
			}
			if csp := header.Get("Content-Security-Policy"); want == 200 && csp != policy {
				t.Errorf("%s%s: policy %q", host, path, csp)
			}
		}
	}
	for _, path := range []string{"/main.go", "/web/index.html", "/../server.go", "/nowhere"} {
		if status, _, _ := ask(t, nil, "localhost", path); status == 200 {
			t.Errorf("%s is served", path)
		}
	}
	for _, banned := range []string{"http:", "https:", "unsafe", "*"} {
		if strings.Contains(policy, banned) {
			t.Errorf("the policy allows %s", banned)
		}
	}
}

func TestOtherSitesMayOnlyLink(t *testing.T) {
	for _, c := range []struct {
		site, mode string
		want       int
	}{
		{"cross-site", "no-cors", 403}, {"cross-site", "cors", 403}, {"cross-site", "navigate", 200},
		{"same-origin", "cors", 200}, {"none", "navigate", 200}, {"", "", 200},
	} {
		r := httptest.NewRequest(http.MethodGet, "/simulate?algorithms=gcra", nil)
		r.Host = "localhost"
		r.Header.Set("Sec-Fetch-Site", c.site)
		r.Header.Set("Sec-Fetch-Mode", c.mode)
		w := httptest.NewRecorder()
		handler(nil).ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s, %s: %d, want %d", c.site, c.mode, w.Code, c.want)
		}
	}
}

// The page needs no network, and no markup is made of data.
func TestThePageIsSelfContained(t *testing.T) {
	files, err := filepath.Glob("web/*")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, banned := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "https://", " onclick=", " style="} {
			if strings.Contains(string(text), banned) {
				t.Errorf("%s has %s", path, banned)
			}
		}
		if rest := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", ""); strings.Contains(rest, "http://") {
			t.Errorf("%s has an address", path)
		}
	}
}

// The form offers each algorithm that the lab has, those of the default scenario chosen,
// and the page has words about each.
func TestThePageHasEachAlgorithm(t *testing.T) {
	_, body, header := ask(t, nil, "localhost", "/")
	words, err := os.ReadFile("web/rows.js")
	if err != nil || !strings.HasPrefix(header.Get("Content-Type"), "text/html") {
		t.Fatalf("%v, the page is %s", err, header.Get("Content-Type"))
	}
	chips := regexp.MustCompile(`name="algorithms" value="(\w+)"( checked)?( data-held)?>`).FindAllStringSubmatch(body, -1)
	if len(chips) != len(all) {
		t.Fatalf("%d boxes, want %d", len(chips), len(all))
	}
	var chosen []algorithms.Algorithm
	for i, chip := range chips {
		if chip[1] != all[i].String() || !strings.Contains(string(words), "\n  "+chip[1]+": '") || (chip[3] != "") != (all[i] == algorithms.InFlight) {
			t.Errorf("%q, want %s and words about it", chip, all[i])
		}
		if chip[2] != "" {
			chosen = append(chosen, all[i])
		}
	}
	if s, err := parseScenario(nil); err != nil || !slices.Equal(chosen, s.algorithms) {
		t.Errorf("%s are chosen on the page, %s in an empty query; %v", chosen, s.algorithms, err)
	}
}

// The page's numbers are those of the algorithms, asked without the lab.
func TestTotalsAreTheAlgorithms(t *testing.T) {
	limit := algorithms.Limit{Rate: 50, Period: 10 * time.Second, Burst: 8, Algorithm: algorithms.TokenBucket}
	requests := simulate.Traffic{Rate: 50, Period: 10 * time.Second}.Poisson(simulate.Random(42), 1.3, time.Minute)
	outcomes, _, err := simulate.Run(requests, limit)
	if err != nil {
		t.Fatal(err)
	}
	want := simulate.Judge(requests, outcomes, limit.Rate, limit.Period, nil)
	got := simulated(t, "rate=50&period=10s&burst=8&algorithms=token_bucket&traffic=poisson&load=1.3&seed=42&periods=6").Rows[0].Totals
	got.AtOnce = 0
	if got != (totals{Admitted: want.Admitted, Denied: want.Denied(), Worst: want.Worst, FalseAdmits: want.FalseAdmits, FalseDenials: want.FalseDenials}) || want.FalseAdmits == 0 {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// What the page of overload shows is what the tests of package shed assert.
func TestOverload(t *testing.T) {
	status, body, _ := ask(t, nil, "localhost", "/overload.json?load=2&seconds=30")
	var s overloaded
	if err := json.Unmarshal([]byte(body), &s); status != http.StatusOK || err != nil {
		t.Fatalf("%d %s, %v", status, body, err)
	}
	if len(s.Rows) != 3 || s.Capacity != 160 || math.Abs(float64(s.Requests)/(2*160*30)-1) > .05 {
		t.Fatalf("%d rows, %d requests of a capacity of %v", len(s.Rows), s.Requests, s.Capacity)
	}
	for _, r := range s.Rows {
		requests, inTime := 0, 0
		for _, n := range r.Served {
			requests, inTime = requests+n.Requests, inTime+n.InTime
		}
		if sum(r.InTime) != inTime || sum(r.InTime)+sum(r.Late)+sum(r.Shed) != s.Requests || requests != s.Requests || len(r.Limit) != 30 || len(r.Inside) != 30 {
			t.Errorf("%s: the series do not add up to %d requests", r.Name, s.Requests)
		}
		critical := float64(r.Served[0].InTime) / float64(r.Served[0].Requests)
		if r.Name == "none" {
			if r.Goodput > .1 || critical > .1 || r.ShedShare > 0 || slices.Max(r.Limit) > 0 || r.Inside[29] < 4000 {
				t.Errorf("%s: goodput %v, %v of critical requests", r.Name, r.Goodput, critical)
			}
			continue
		}
		if r.Goodput < .95 || critical < .99 || math.Abs(r.ShedShare-.5) > .03 || r.CriticalP99 > .33 || slices.Min(r.Limit) < 16 || slices.Max(r.Limit) > 48 {
			t.Errorf("%s: goodput %v, %v of critical requests, %v shed, limits %v", r.Name, r.Goodput, critical, r.ShedShare, r.Limit)
		}
	}
	for query, want := range map[string]mistake{
		"workers=65":                     {"workers: write a whole number from 1 to 64", "workers"},
		"load=21":                        {"load: write a number from 0.1 to 20", "load"},
		"load=NaN":                       {"load: write a number from 0.1 to 20", "load"},
		"critical=0":                     {"critical: write a number from 1 to 100", "critical"},
		"rate=5":                         {`rate: no such field; choose from ["workers" "load" "critical" "seconds"]`, "rate"},
		"seconds=4":                      {"seconds: write a whole number from 5 to 120", "seconds"},
		"workers=64&load=20&seconds=120": {"load: that is about 3072000 requests; the lab sends at most 50000: lower the workers, the load or the seconds", "load"},
	} {
		status, body, _ := ask(t, nil, "localhost", "/overload.json?"+query)
		var got mistake
		if err := json.Unmarshal([]byte(body), &got); err != nil || status != http.StatusBadRequest || got != want {
			t.Errorf("%s: %d %s %v", query, status, body, err)
		}
	}
}

func FuzzScenario(f *testing.F) {
	for _, traffic := range everyTraffic {
		f.Add(everyAlgorithm + "&rate=5&burst=2&period=10s&periods=3&" + traffic)
	}
	f.Add("rate=9&load=1e308&period=30d")
	f.Add("load=0x1p-5&period=1h30m0.5s")
	f.Fuzz(func(t *testing.T, query string) {
		v, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		s, err := parseScenario(v)
		if err != nil {
			return
		}
		if e := s.expected(); e > maxRequests || math.IsNaN(e) || s.length() <= 0 {
			t.Fatalf("%+v: %f requests in %s", s, e, s.length())
		}
		if s.expected() > 2000 {
			return // as above, and slow
		}
		if _, err := s.simulate(); err != nil {
			t.Fatalf("%+v: %v", s, err)
		}
	})
}
