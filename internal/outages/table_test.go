package outages

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the table of outages into docs/testing.md")

const document = "../../docs/testing.md"

// budget is the limiter's: the default one, or a roomy one where other tests
// run at the same time.
var budget = map[bool]time.Duration{false: 100 * time.Millisecond, true: 50 * time.Millisecond}[all]

// onlyAll skips what is not in the selection.
func onlyAll(t *testing.T) {
	t.Helper()
	if !all {
		t.Skip("not in the selection; OUTAGES=all runs it")
	}
}

// selection is the first n of some scenarios, or all.
func selection[S any](scenarios []S, n int) []S {
	if all {
		return scenarios
	}
	return scenarios[:n]
}

// A row is what an outage is called in the table, and its place there.
type row struct {
	place int
	name  string
}

// A line is a row with what was measured.
type line struct {
	row
	text string
}

var table []line

// spoiled are the rows of which a busy machine lets nobody say how long they took.
var spoiled []string

// untimed notes that the machine was too busy for this row's times.
func (r row) untimed(t *testing.T) {
	t.Helper()
	t.Log("the machine was so busy that this proves nothing about times")
	spoiled = append(spoiled, r.name)
}

// write fills the row.
func (r row) write(s summary, outage bool) {
	recovered := "–"
	if outage {
		recovered = fmt.Sprint(max(s.recovered, 0).Round(time.Millisecond))
	}
	slowest := "–"
	if s.slowest >= 0 {
		slowest = fmt.Sprint(s.slowest.Round(time.Millisecond))
	}
	table = append(table, line{r, fmt.Sprintf("| %s | %d | %d | %d | %s | %d | %d | %d | %s |",
		r.name, s.requests, s.answered, s.alone, slowest, s.wronglyAdmitted, s.wronglyDeny, s.forgotten, recovered)})
}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	var err error
	switch {
	case code != 0 || !all:
	case len(spoiled) > 0:
		err = fmt.Errorf("the machine was too busy for the times of %q; try again when it is not", spoiled)
	case *update:
		err = writeTable()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		if *update {
			code = 1 // the table is not written
		}
	}
	os.Exit(code)
}

// place is where the document shows the table.
var place = regexp.MustCompile(`(?s)<!-- outages -->.*?<!-- / -->`)

func writeTable() error {
	text, err := os.ReadFile(document)
	if os.IsNotExist(err) {
		text, err = []byte("# Testing\n\n<!-- outages --><!-- / -->\n"), nil
	}
	if err != nil {
		return err
	}
	if !place.Match(text) {
		return fmt.Errorf("%s: no place <!-- outages --><!-- / --> for the table", document)
	}
	lines := []string{
		"*Without Redis*: requests that neither Redis nor a [remembered denial](operations.md#denials-without-redis) decided. *Slowest*: the slowest request, less the",
		"delay of the machine itself. *Units forgotten*: units that Redis had counted and then lost. *Redis decides again after*: counted from the end of",
		"the fault. –: not measured.",
		"",
		"| outage | requests | answered | without Redis | slowest | wrongly admitted | wrongly denied | units forgotten | Redis decides again after |",
		"|---|--:|--:|--:|--:|--:|--:|--:|--:|",
	}
	slices.SortStableFunc(table, func(a, b line) int { return cmp.Compare(a.place, b.place) })
	for _, l := range table {
		lines = append(lines, l.text)
	}
	text = place.ReplaceAllLiteral(text, []byte("<!-- outages -->\n\n"+strings.Join(lines, "\n")+"\n\n<!-- / -->"))
	return os.WriteFile(document, text, 0o644)
}
