// Rules checks a rule file: it prints the rules as a program would understand them,
// with their defaults filled in and the next boundary of each calendar window, or every
// mistake with its line and column. Run it where rule files are reviewed.
//
//	go run ./examples/rules check rules.yaml
//	go run ./examples/rules check -keys user,tenant -tiers pro,enterprise rules.yaml
//	cat rules.yaml | go run ./examples/rules check -
//
// It exits with 1 if there is a mistake. Copy it, and take the Loader of your
// program in place of the flags.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
	_ "time/tzdata" // for machines without time zones

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/keyfunc"
	ratelimit "github.com/seed75154129/ratelimit/middleware"
	"github.com/seed75154129/ratelimit/middleware/rulefile"
)

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) (status int) {
	const usage = "usage: rules check [-keys NAME,…] [-tiers NAME,…] FILE"
	flags := flag.NewFlagSet("rules check", flag.ContinueOnError)
	flags.SetOutput(stderr)
	say := func(what any) { _, _ = fmt.Fprintln(stderr, what) } // nobody to tell
	flags.Usage = func() { say(usage); flags.PrintDefaults() }
	keys := flags.String("keys", "user,tenant,route", "`names` of the program's keys, beside ip, everyone, header:NAME and apikey:NAME")
	tiers := flags.String("tiers", "", "`names` of the program's tiers (default: any)")
	if len(args) == 0 || args[0] != "check" {
		say(usage)
		return 2
	}
	switch err := flags.Parse(args[1:]); {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	case flags.NArg() != 1:
		flags.Usage()
		return 2
	}
	rules, err := check(flags.Arg(0), stdin, split(*keys), split(*tiers))
	var text []byte
	if err == nil {
		text, err = rulefile.Format(rules)
	}
	if err != nil {
		say(err)
		return 1
	}
	_, _ = stdout.Write(append(text, boundaries(rules, time.Now)...))
	return 0
}

// boundaries says when the calendar windows of rules end next, on the clocks of their time
// zones and in UTC, as comments of a document. A Memory knows.
func boundaries(rules []ratelimit.Rule, now func() time.Time) (text []byte) {
	for _, r := range rules {
		limits := append(slices.Clone(r.Limits), r.Limit)
		for _, tier := range slices.Sorted(maps.Keys(r.Tiers)) {
			limits = append(limits, r.Tiers[tier]...)
		}
		told := make(map[string]bool)
		for _, l := range limits {
			_, zone, found := strings.Cut(l.Calendar, "@")
			if !found || told[l.Calendar] {
				continue
			}
			told[l.Calendar] = true
			d, err := (&algorithms.Memory{Now: now}).Take(context.Background(), algorithms.Check{Limit: l})
			in, err2 := time.LoadLocation(zone)
			if err != nil || err2 != nil {
				continue // a rule of the file has neither
			}
			ends := d.Results[0].At.Add(d.Results[0].ResetAfter)
			text = fmt.Appendf(text, "# %s: the next %s begins %s, %s\n", r.Name, l.Calendar, ends.In(in).Format("2006-01-02 15:04 -07:00"), ends.UTC().Format("2006-01-02 15:04 UTC"))
		}
	}
	return text
}

// check returns the rules in a file, or in stdin where that is "-".
func check(path string, stdin io.Reader, keys, tiers []string) ([]ratelimit.Rule, error) {
	loader := rulefile.Loader{Keys: make(map[string]keyfunc.Key), Tiers: tiers}
	for _, name := range keys {
		loader.Keys[name] = keyfunc.Func(func(*http.Request) (string, error) { return "", keyfunc.ErrNoKey })
	}
	if path == "-" {
		text, err := io.ReadAll(stdin)
		if err != nil {
			return nil, err
		}
		return loader.Parse("stdin", text)
	}
	loader.Source = rulefile.File(path)
	return loader.Load(context.Background())
}

func split(names string) []string {
	if names == "" {
		return nil
	}
	return strings.Split(names, ",")
}
