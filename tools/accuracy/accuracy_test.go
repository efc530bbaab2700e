package accuracy

import (
	"encoding/xml"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/simulate"
)

var update = flag.Bool("update", false, "write the figures and pictures into docs")

const (
	document = "../../docs/algorithms.md"
	pictures = "../../docs/accuracy"

	mostBytes = 60_000 // of a picture
)

// TestAccuracy computes every figure of the document, and its pictures, and
// wants them to be what the document shows.
func TestAccuracy(t *testing.T) {
	figures := make(figures)
	drawings := make(map[string]string)
	var results []result
	for _, s := range shapes() {
		t.Run(s.slug, func(t *testing.T) {
			r := result{shape: s}
			var shown [][]simulate.Outcome
			for _, c := range columns {
				outcomes := simulated(t, s.requests, c.limits...)
				for i := range outcomes[1:] {
					if !slices.Equal(outcomes[0], outcomes[i+1]) {
						t.Errorf("%s and %s decide differently", c.limits[0], c.limits[i+1])
					}
				}
				score := judge(s.requests, outcomes[0], rate)
				keepsPromise(t, s, c, score)
				r.scores = append(r.scores, score)
				shown = append(shown, outcomes[0])
			}
			results = append(results, r)
			if s.picture {
				drawing := draw(s, shown)
				if err := xml.Unmarshal([]byte(drawing), new(struct{})); err != nil || len(drawing) > mostBytes {
					t.Errorf("picture of %d bytes: %v", len(drawing), err)
				}
				drawings[s.slug+".svg"] = drawing
			}
			if s.slug == "clients" {
				figures["cloudflare"] = cloudflareTable(judgeClients(s.requests, shown[estimated], rate), r.scores[estimated])
			}
		})
	}
	figures.add(results)
	figures["loads"] = loadTable(t)
	for _, name := range []string{"worst", "errors", "totals", "cloudflare", "loads"} {
		t.Logf("%s\n%s", name, figures[name])
	}
	compare(t, figures, drawings)
}

// keepsPromise wants what the document says of the worst case.
func keepsPromise(t *testing.T, s shape, c column, got score) {
	t.Helper()
	most := c.most
	if c.slug == "leaky_bucket" && s.slug == "costs" {
		most += mostCost - 1 // a request is served at once, however long its slot is
	}
	if got.Worst > most {
		t.Errorf("%s: %d units in a span of %s; at most %d are promised", c.slug, got.Worst, period, most)
	}
	if c.slug == "sliding_log" && got.FalseAdmits+got.FalseDenials > 0 {
		t.Errorf("sliding_log made %d false admits and %d false denials", got.FalseAdmits, got.FalseDenials)
	}
	if c.slug != "leaky_bucket" && got.MaxDelay > 0 {
		t.Errorf("%s: a delay of %s", c.slug, got.MaxDelay)
	}
}

// loadTable is sliding_window's errors on Poisson traffic, by load and rate.
func loadTable(t *testing.T) string {
	t.Helper()
	lengths := map[int64]int{10: 300, 100: 50, 1000: 6} // periods
	rates := slices.Sorted(maps.Keys(lengths))
	rows := table{{"load"}}
	for _, rate := range rates {
		rows[0] = append(rows[0], "limit of "+thousands(int(rate)))
	}
	for i, load := range []float64{0.5, 0.7, 0.8, 0.9, 1, 1.1, 1.5} {
		row := []string{percent(100*load) + " %"}
		for _, rate := range rates {
			requests := simulate.Traffic{Rate: rate, Period: period}.Poisson(simulate.Random(uint64(100+i)), load, time.Duration(lengths[rate])*period)
			outcomes := simulated(t, requests, algorithms.Limit{Rate: rate, Period: period, Algorithm: algorithms.SlidingWindow})
			s := judge(requests, outcomes[0], rate)
			row = append(row, percent(s.falseAdmitShare())+" / "+percent(s.falseDenialShare()))
		}
		rows = append(rows, row)
	}
	return rows.String()
}

// simulated is what the limits make of the requests, by limit and request.
func simulated(t *testing.T, requests []simulate.Request, limits ...algorithms.Limit) [][]simulate.Outcome {
	t.Helper()
	outcomes := make([][]simulate.Outcome, len(limits))
	for i, limit := range limits {
		var err error
		if outcomes[i], _, err = simulate.Run(requests, limit); err != nil {
			t.Fatal(err)
		}
	}
	return outcomes
}

// compare wants document and pictures to show the figures and drawings, or
// writes them.
func compare(t *testing.T, figures figures, drawings map[string]string) {
	t.Helper()
	text := read(t, document)
	if *update {
		write(t, document, figures.fill(text))
		for name, drawing := range drawings {
			write(t, filepath.Join(pictures, name), drawing)
		}
		return
	}
	const hint = "make accuracy writes what is computed"
	if stale := figures.stale(text); len(stale) > 0 {
		t.Errorf("%s: stale: %s; %s", document, strings.Join(stale, ", "), hint)
	}
	if line := startsLine.FindString(text); line != "" {
		t.Errorf("%s: a figure begins a line, which ends the paragraph: %s", document, line)
	}
	for _, name := range places(text) {
		if _, ok := figures[name]; !ok && !strings.HasPrefix(name, "redis/") {
			t.Errorf("%s: no figure is called %q", document, name)
		}
	}
	for name, drawing := range drawings {
		if read(t, filepath.Join(pictures, name)) != drawing {
			t.Errorf("%s: stale; %s", filepath.Join(pictures, name), hint)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

const s = time.Second

func TestJudgeClients(t *testing.T) {
	// Client 0 stays within 2 and is denied; 1 sends 3 and is not; 2 sends 3 and is.
	requests := []simulate.Request{
		{At: 0, Client: 0, Cost: 1}, {At: 0, Client: 1, Cost: 1}, {At: 0, Client: 2, Cost: 1},
		{At: s, Client: 0, Cost: 1}, {At: s, Client: 1, Cost: 1}, {At: s, Client: 2, Cost: 1},
		{At: 2 * s, Client: 1, Cost: 1}, {At: 2 * s, Client: 2, Cost: 1},
	}
	outcomes := make([]simulate.Outcome, len(requests))
	for i := range outcomes {
		outcomes[i] = simulate.Outcome{Allowed: i != 3 && i != 7, Served: requests[i].At}
	}
	want := verdict{requests: 8, clients: 3, over: 2, wronglyDenied: 1, wronglyFree: 1, wrong: 2}
	if got := judgeClients(requests, outcomes, 2); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestDocument(t *testing.T) {
	f := figures{"a": "1", "b": "| x |\n"}
	const text = "of <!-- a -->2<!-- / --> and\n<!-- b --><!-- / -->\nnot <!-- c -->3<!-- / -->"
	if stale := f.stale(text); len(stale) != 2 {
		t.Errorf("stale: %q", stale)
	}
	filled := f.fill(text)
	if want := "of <!-- a -->1<!-- / --> and\n<!-- b -->\n\n| x |\n\n<!-- / -->\nnot <!-- c -->3<!-- / -->"; filled != want {
		t.Errorf("filled:\n%s", filled)
	}
	if stale := f.stale(filled); len(stale) != 0 {
		t.Errorf("stale after filling: %q", stale)
	}
	if names := places(filled); len(names) != 3 {
		t.Errorf("places: %q", names)
	}
}
