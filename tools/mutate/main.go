// Command mutate changes the steps of the algorithms, in Go and in Lua, one
// comparison, operator or number at a time, and reports which changes no test
// notices. `make mutate` runs it; it takes a while.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// root is the library's module, seen from this one's folder.
const root = ".."

// A stage is tests of a package.
type stage struct {
	pkg, tests string
	rapid      bool // some are random schedules
}

// The tests that know what the steps have to do, without those that repeat them
// on miniredis. Most mutants fall to the first.
var (
	inGo = []stage{
		{"algorithms", "^TestHistories$/^(exact|beside another limit)$", true},
		{"internal/step", "^TestACalendarWindow", false},
		{"internal/memory", "^TestSketches", true},
		{"failmode", "^Test(Unf|F)ollow", false},
	}
	onRedis = []stage{
		{"algorithms", "^TestHistories$/^(redis|redis, jointly|cluster)$", true},
		{"algorithms", "^(TestAClock.*|TestEachForm.*|TestWhatIsNotOurs.*|TestTheLongest.*|TestALog.*|TestALong.*|TestStatesAre.*|TestDeadlines.*|TestLeasesOf.*)$", false},
	}
)

// files are what is mutated: the steps, what they share, and the scripts of their twins.
var files = []string{
	steps + "fixed_window.go", steps + "sliding_window.go", steps + "sliding_log.go", steps + "bucket.go", steps + "queue.go",
	steps + "in_flight.go", steps + "calendar_window.go", steps + "correction.go",
	scripts + "common.lua", scripts + "take.lua", scripts + "joint.lua", scripts + "settle.lua",
}

const (
	steps   = "internal/step/"
	scripts = "internal/script/"
)

func main() {
	arithmetic := flag.Bool("arithmetic", false, "change arithmetic too, not only comparisons, roundings and conditions")
	only := flag.String("only", "", "mutate only files whose name contains this")
	list := flag.Bool("list", false, "list the mutants and run nothing")
	sample := flag.Int("sample", 1, "try only every so many-th mutant")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *only, *list, *arithmetic, max(*sample, 1))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, list, arithmetic bool, sample int) error {
	all, err := allMutants(only, arithmetic, sample)
	if err != nil {
		return err
	}
	if list {
		for _, m := range all {
			fmt.Printf("%s:%d: %s\n", m.file, m.line, m.what)
		}
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	todo, results := make(chan mutant), make(chan result)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) { // each on a copy of its own
		workers.Go(func() {
			if err := work(ctx, todo, results); err != nil {
				cancel(err)
			}
		})
	}
	go func() {
		defer close(results)
		defer workers.Wait()
		defer close(todo)
		for _, m := range all {
			select {
			case todo <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	count := map[outcome]int{}
	for r := range results {
		count[r.outcome]++
		fmt.Printf("%-9s %s:%d: %s (%s)\n", r.outcome, r.file, r.line, r.what, r.by)
	}
	fmt.Printf("%d killed, %d hung, %d survived, %d did not compile\n", count[killed], count[hung], count[survived], count[broken])
	return context.Cause(ctx)
}

// allMutants returns every sample-th mutant of the files whose name contains only.
func allMutants(only string, arithmetic bool, sample int) (all []mutant, err error) {
	for _, file := range files {
		if !strings.Contains(file, only) {
			continue
		}
		source, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return nil, err
		}
		for _, m := range mutants(string(source), arithmetic) {
			m.file = file
			all = append(all, m)
		}
	}
	for i := 0; i*sample < len(all); i++ {
		all[i] = all[i*sample]
	}
	return all[:(len(all)+sample-1)/sample], nil
}

// work tries mutants, one after the other, on a copy of the module whose tests pass.
func work(ctx context.Context, todo <-chan mutant, results chan<- result) error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, part := range []string{"go.mod", "go.sum", "algorithms", "failmode", "internal"} {
		if out, err := command(ctx, root, "cp", "-r", "--parents", part, dir).CombinedOutput(); err != nil {
			return fmt.Errorf("copy %s: %w\n%s", part, err, out)
		}
	}
	if outcome, out := build(ctx, dir); outcome != survived {
		return fmt.Errorf("the tests do not build:\n%s", out)
	}
	if outcome, _, out := test(ctx, dir, slices.Concat(inGo, onRedis)); outcome != survived {
		return fmt.Errorf("the tests fail without a mutation:\n%s", out)
	}
	for m := range todo {
		outcome, by, err := try(ctx, dir, m)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil // stopped: what was found says nothing
		}
		results <- result{m, outcome, by}
	}
	return nil
}

// try tests one mutant, and takes it back.
func try(ctx context.Context, dir string, m mutant) (found outcome, by string, err error) {
	path := filepath.Join(dir, m.file)
	source, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	defer func() { err = errors.Join(err, os.WriteFile(path, source, 0o600)) }()
	if err := os.WriteFile(path, []byte(m.source), 0o600); err != nil {
		return "", "", err
	}
	if strings.HasSuffix(m.file, ".lua") { // scripts are read when the tests run
		found, by, _ = test(ctx, dir, onRedis)
		return found, by, nil
	}
	if found, _ = build(ctx, dir); found == survived {
		found, by, _ = test(ctx, dir, slices.Concat(inGo, onRedis))
	}
	return found, by, nil
}

type outcome string

const (
	killed   outcome = "killed"
	hung     outcome = "HUNG" // no answer in time: killed, unless the machine was busy
	survived outcome = "SURVIVED"
	broken   outcome = "broken"
)

func command(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	return cmd
}

// build builds the tests of a mutant.
func build(ctx context.Context, dir string) (outcome, []byte) {
	if out, err := command(ctx, dir, "go", "test", "-c", "-vet=off", "-o", dir, "./algorithms", "./failmode", "./internal/memory", "./internal/step").CombinedOutput(); err != nil {
		return broken, out
	}
	return survived, nil
}

// failed is where a test, or a part of it, has failed.
var failed = regexp.MustCompile(`--- FAIL: (\S+)`)

// firstFailed names the part of a test that failed.
func firstFailed(out []byte) string {
	if all := failed.FindAllSubmatch(out, -1); all != nil {
		return string(all[len(all)-1][1])
	}
	return "a panic"
}

// test runs the tests on a mutant, one stage after the other. by is what killed it.
func test(ctx context.Context, dir string, stages []stage) (result outcome, by string, out []byte) {
	for _, s := range stages {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
		args := []string{"-test.failfast", "-test.run", s.tests}
		if s.rapid {
			args = append(args, "-rapid.nofailfile", "-rapid.shrinktime=0s")
		}
		cmd := command(ctx, filepath.Join(dir, s.pkg), filepath.Join(dir, filepath.Base(s.pkg)+".test"), args...)
		cmd.Env = append(os.Environ(), "REQUIRE_REDIS=1", "LUA_DIR="+filepath.Join(dir, scripts))
		out, err := cmd.CombinedOutput()
		late := ctx.Err() != nil
		cancel()
		switch {
		case late:
			return hung, s.tests, out
		case err != nil:
			return killed, firstFailed(out), out
		}
	}
	return survived, "", nil
}

// A mutant is a file with one change.
type mutant struct {
	file         string
	line         int
	what, source string
}

type result struct {
	mutant
	outcome
	by string
}

var (
	token   = regexp.MustCompile(`<=|>=|==|!=|~=|:=|\+\+|&&|\|\||[<>+\-*/%]|\b(?:min|max|and|or|true|false)\b|\b\d+\b`)
	replace = map[string]string{
		"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "~=": "==",
		"+": "-", "-": "+", "*": "+", "/": "*", "%": "*", "&&": "||", "||": "&&", "++": "--",
		"and": "or", "or": "and", "min": "max", "max": "min", "true": "false", "false": "true",
	}
	isArithmetic = regexp.MustCompile(`^[+\-*/%]$`)
	// index is before the numbers that only say where something is kept.
	index = regexp.MustCompile(`(\[[a-z] \+ |[0-9] \* i - |\bp \+ |^\s*local r, s = .*)$`)
	skip  = regexp.MustCompile(`^\s*(//|--|import|package|"|func|type |local function|return redis\.error_reply|local steps|local reply = |local after = |local arguments|local corrections|local more|local writes)`)
)

// mutants returns every way to change one token of the source.
func mutants(source string, arithmetic bool) (all []mutant) {
	lines := strings.SplitAfter(source, "\n")
	lua := strings.Contains(source, "ARGV")
	for i, line := range lines {
		code := line
		for _, comment := range []string{"//", " -- "} {
			code, _, _ = strings.Cut(code, comment)
		}
		if skip.MatchString(line) {
			continue
		}
		for _, at := range token.FindAllStringIndex(code, -1) {
			old := code[at[0]:at[1]]
			if strings.Count(code[:at[0]], `'`)%2 == 1 || strings.Count(code[:at[0]], `"`)%2 == 1 {
				continue // inside a string
			}
			if !arithmetic && (isArithmetic.MatchString(old) || index.MatchString(code[:at[0]])) {
				continue
			}
			now, ok := replace[old]
			if old == "==" && lua {
				now = "~="
			}
			if !ok {
				var n int
				if _, err := fmt.Sscan(old, &n); err != nil || strings.HasSuffix(code[:at[0]], "%") {
					continue
				}
				now = strconv.Itoa(n + 1)
			}
			mutated := append([]string(nil), lines...)
			mutated[i] = line[:at[0]] + now + line[at[1]:]
			all = append(all, mutant{
				line:   i + 1,
				what:   fmt.Sprintf("%s -> %s in %s", old, now, strings.TrimSpace(code)),
				source: strings.Join(mutated, ""),
			})
		}
	}
	return all
}
