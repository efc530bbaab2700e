// Command report reads the output of "go test -bench", of one run or of several
// one after the other, and prints Markdown: the rows of a page of benchmarks/results, the
// table that docs/performance.md has of them, and the median of everything measured.
//
// With -write it puts the first two into their pages, between <!-- peers --> (or <!-- keys -->)
// and <!-- / -->, and draws docs/performance.svg.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	name := flag.String("of", "peers", "what was measured: peers or keys")
	root := flag.String("write", "", "write the pages of the repository in this folder")
	rounds := flag.Int("rounds", 1, "refuse to write pages of fewer runs of each benchmark")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *name, *root, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, name, root string, rounds int) error {
	m, err := read(in)
	if err == nil && len(m.samples) == 0 {
		err = errors.New("no benchmark in the input")
	}
	if err != nil {
		return err
	}
	var rows, summary string
	switch name {
	case "peers":
		rows, summary = peersRows(m), costs(m)
	case "keys":
		rows, summary = keysRows(m), carries(m)
	default:
		return fmt.Errorf("-of is peers or keys, not %q", name)
	}
	if _, err := fmt.Fprint(out, summary, "\n", rows, everything(m)); err != nil {
		return err
	}
	if root == "" {
		return nil
	}
	if m.failed != "" {
		return fmt.Errorf("not written, since a run failed: %s", m.failed)
	}
	for metric, values := range m.samples {
		if len(values) < rounds {
			return fmt.Errorf("not written: %s was measured %d times, not %d", metric.benchmark, len(values), rounds)
		}
	}
	if err := fill(filepath.Join(root, "benchmarks", "results", name+".md"), name, rows); err != nil {
		return err
	}
	if name == "peers" {
		if err := os.WriteFile(filepath.Join(root, "docs", "performance.svg"), []byte(draw(m)), 0o644); err != nil { //nolint:gosec // a picture for everybody
			return err
		}
	}
	return fill(filepath.Join(root, "docs", "performance.md"), name, summary)
}

// fill puts text into a place of a document.
func fill(document, name, text string) error {
	old, err := os.ReadFile(document)
	if err != nil {
		return err
	}
	place := regexp.MustCompile(`(?s)<!-- ` + regexp.QuoteMeta(name) + ` -->.*?<!-- / -->`)
	if !place.Match(old) {
		return fmt.Errorf("%s: no place <!-- %s --><!-- / -->", document, name)
	}
	text = "<!-- " + name + " -->\n\n" + strings.TrimSpace(text) + "\n\n<!-- / -->"
	return os.WriteFile(document, place.ReplaceAllLiteral(old, []byte(text)), 0o644) //nolint:gosec // as it was
}

// A metric is one unit of one benchmark.
type metric struct{ benchmark, unit string }

// A measured is what the runs printed.
type measured struct {
	samples  map[metric][]float64 // in the order of the runs
	machine  map[string][]string  // "cpu" and the like: what each run said, without repetitions
	failed   string               // a line that says that a run failed
	benchmed []string             // benchmarks in the order of the first run
}

var (
	// result is a result of go test: name, GOMAXPROCS, iterations, values and units.
	result = regexp.MustCompile(`^Benchmark(\S+?)(?:-\d+)?\s+\d+\s+(.*)$`)
	about  = regexp.MustCompile(`^([a-z][a-z_-]*): (.+)$`)
	broken = regexp.MustCompile(`^(--- FAIL|FAIL|panic:)`)
)

func read(r io.Reader) (measured, error) {
	m := measured{samples: make(map[metric][]float64), machine: make(map[string][]string)}
	in := bufio.NewScanner(r)
	for in.Scan() {
		text := in.Text()
		if match := about.FindStringSubmatch(text); match != nil {
			if !slices.Contains(m.machine[match[1]], match[2]) {
				m.machine[match[1]] = append(m.machine[match[1]], match[2])
			}
			continue
		}
		if m.failed == "" && broken.MatchString(text) {
			m.failed = text
		}
		match := result.FindStringSubmatch(text)
		if match == nil {
			continue
		}
		if !slices.Contains(m.benchmed, match[1]) {
			m.benchmed = append(m.benchmed, match[1])
		}
		for pair := range slices.Chunk(strings.Fields(match[2]), 2) {
			value, err := strconv.ParseFloat(pair[0], 64)
			if err != nil || len(pair) < 2 {
				return m, fmt.Errorf("cannot read %q", text)
			}
			key := metric{match[1], pair[1]}
			m.samples[key] = append(m.samples[key], value)
		}
	}
	return m, in.Err()
}

// middle is the median, and half the range in percent of it.
func middle(values []float64) (mid, spread float64) {
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	mid = (sorted[(n-1)/2] + sorted[n/2]) / 2
	if mid != 0 {
		spread = (sorted[n-1] - sorted[0]) / 2 / mid * 100
	}
	return mid, spread
}

// median is false where it was not measured.
func (m measured) median(benchmark, unit string) (float64, bool) {
	values := m.samples[metric{benchmark, unit}]
	if len(values) == 0 {
		return 0, false
	}
	mid, _ := middle(values)
	return mid, true
}

// ratios are a metric's ratios to another, round by round: what disturbs one
// round disturbs both.
func (m measured) ratios(of, over metric) []float64 {
	a, b := m.samples[of], m.samples[over]
	var all []float64
	for i := range min(len(a), len(b)) {
		if b[i] != 0 {
			all = append(all, a[i]/b[i])
		}
	}
	return all
}
