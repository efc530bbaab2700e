// Command mutate changes the steps of the algorithms, in Go and in Lua, one
// comparison, operator or number at a time, and reports which changes no test
// notices. `make mutate` runs it; it takes a while.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// The tests that know what the steps have to do, without those that repeat them
// on miniredis. Most mutants fall to the first.
const (
	inGo    = "^(TestStepsAreExact|TestGivingBack.*|TestSketches.*)$"
	first   = "^TestContract(Memory|Redis)$"
	then    = "^(TestConformance|TestAClock.*|TestHowFar.*|TestPeekHeals.*|TestARaised.*|TestDebt.*|TestImpatient.*|TestRedisRemembers.*|TestTwoLimits.*|TestWhatIsNotOurs.*|TestTheLongest.*|TestALog.*|TestALong.*|TestBans.*|TestABan.*|TestWhatIsNoBan|TestAClockErrorBans.*)$"
	without = "^(TestConformance|TestTwoLimits.*)$/^miniredis$"
)

var files = []string{
	"fixed_window.go", "sliding_window.go", "sliding_log.go", "bucket.go", "queue.go",
	"ban.go", "lua/ban.lua", "lua/take_bans.lua", "lua/bans.lua", "lua/settle_kept.lua",
	"lua/fixed_window.lua", "lua/sliding_window.lua", "lua/sliding_log.lua", "lua/bucket.lua", "lua/queue.lua", "lua/functions.lua", "lua/take.lua", "lua/settle.lua",
}

func main() {
	arithmetic := flag.Bool("arithmetic", false, "change arithmetic too, not only comparisons, roundings and conditions")
	only := flag.String("only", "", "mutate only files whose name contains this")
	list := flag.Bool("list", false, "list the mutants and run nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *only, *list, *arithmetic)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, list, arithmetic bool) error {
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for _, part := range []string{"go.mod", "go.sum", "algorithms", "internal/inside", "internal/transport", "internal/redistest", "internal/wait"} {
		if out, err := exec.CommandContext(ctx, "cp", "-r", "--parents", part, dir).CombinedOutput(); err != nil {
			return fmt.Errorf("copy %s: %w\n%s", part, err, out)
		}
	}
	if !list {
		if outcome, out := build(ctx, dir); outcome != survived {
			return fmt.Errorf("the tests do not build:\n%s", out)
		}
		if outcome, out := test(ctx, dir, inGo, first, then); outcome != survived {
			return fmt.Errorf("the tests fail without a mutation:\n%s", out)
		}
	}
	count := map[outcome]int{}
	for _, file := range files {
		if !strings.Contains(file, only) {
			continue
		}
		path := filepath.Join(dir, "algorithms", file)
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range mutants(string(source), arithmetic) {
			if list {
				fmt.Printf("%s:%d: %s\n", file, m.line, m.what)
				continue
			}
			if err := os.WriteFile(path, []byte(m.source), 0o600); err != nil {
				return err
			}
			result, stages := survived, []string{first, then}
			if strings.HasSuffix(file, ".go") { // scripts are read when the tests run
				result, _ = build(ctx, dir)
				stages = []string{inGo, first, then}
			}
			if result == survived {
				result, _ = test(ctx, dir, stages...)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			count[result]++
			fmt.Printf("%-9s %s:%d: %s\n", result, file, m.line, m.what)
		}
		if err := os.WriteFile(path, source, 0o600); err != nil {
			return err
		}
	}
	fmt.Printf("%d killed, %d survived, %d did not compile\n", count[killed], count[survived], count[broken])
	return nil
}

type outcome string

const (
	killed   outcome = "killed"
	survived outcome = "SURVIVED"
	broken   outcome = "broken"
)

// build builds the tests of a mutant.
func build(ctx context.Context, dir string) (outcome, []byte) {
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-o", filepath.Join(dir, "algorithms.test"), "./algorithms")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return broken, out
	}
	return survived, nil
}

// test runs the tests on a mutant, one stage after the other. One that hangs is
// noticed too.
func test(ctx context.Context, dir string, stages ...string) (result outcome, out []byte) {
	for _, tests := range stages {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
		cmd := exec.CommandContext(ctx, filepath.Join(dir, "algorithms.test"),
			"-test.failfast", "-test.run", tests, "-test.skip", without, "-rapid.nofailfile", "-rapid.shrinktime=0s")
		cmd.Dir = filepath.Join(dir, "algorithms")
		cmd.Env = append(os.Environ(), "REQUIRE_REDIS=1", "LUA_DIR="+cmd.Dir)
		out, err := cmd.CombinedOutput()
		cancel()
		if err != nil {
			return killed, out
		}
	}
	return survived, nil
}

type mutant struct {
	line         int
	what, source string
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
