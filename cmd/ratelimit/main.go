// Ratelimit checks and publishes rule files, replays access logs under them, and serves a
// page on which limits are tried.
//
//	go run github.com/seed75154129/ratelimit/cmd/ratelimit@latest help
package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	_ "time/tzdata" // for machines without time zones

	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/cli"
	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/lab"
	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/replay"
	"github.com/seed75154129/ratelimit/cmd/ratelimit/internal/rules"
	"github.com/seed75154129/ratelimit/internal/near"
)

var commands = []*cli.Command{rules.Check, replay.Command, rules.Publish, rules.Diff, rules.History, lab.Command}

func main() { os.Exit(run(cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}, os.Args[1:])) }

// run runs the command that args begin with and returns the exit code.
func run(s cli.Streams, args []string) int {
	if len(args) == 0 {
		_, _ = fmt.Fprint(s.Err, help()) // without stderr there is no place for an error
		return 2
	}
	name, rest := args[0], args[1:]
	switch {
	case name == "help" && len(rest) > 0:
		name, rest = rest[0], []string{"-h"}
	case name == "help", name == "-h", name == "-help", name == "--help":
		_, _ = fmt.Fprint(s.Out, help()) // nobody to tell
		return 0
	}
	var names []string
	for _, c := range commands {
		if c.Name == name {
			return c.Execute(s, rest)
		}
		names = append(names, c.Name)
	}
	meant := ""
	if word := near.Word(name, names); word != "" {
		meant = fmt.Sprintf("; do you mean %s?", word)
	}
	_, _ = fmt.Fprintf(s.Err, "ratelimit: no command %q%s\n\n%s", name, meant, help())
	return 2
}

// help lists the commands.
func help() string {
	var text strings.Builder
	text.WriteString("usage: ratelimit COMMAND [flags] [arguments]\n\n")
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, c := range commands {
		_, _ = fmt.Fprintf(w, "  %s\t%s\t%s\n", c.Name, c.Args, c.Does) // to a strings.Builder
	}
	_ = w.Flush()
	text.WriteString("\nratelimit COMMAND -h explains a command.\n" +
		"Exit codes: 0 if all is well, 1 if it is not, 2 for wrong flags or arguments.\n")
	return text.String()
}
