// Package cli is what the commands of ratelimit share: their help, flags, errors and exit
// codes.
package cli

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Streams are what a command reads and writes.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// A Command is a command of ratelimit.
type Command struct {
	Name  string
	Args  string // what follows the flags, such as "FILE"
	Does  string // in a line
	Help  string // what it does, examples and exit codes
	Flags func(*flag.FlagSet) Run
}

// A Run executes a command, whose flags are set. Its error is printed, and the exit code
// is 1 unless the error is an [Exit] or from [Usage].
type Run func(s Streams, args []string) error

// Exit is an error with an exit code. Without Err nothing is printed.
type Exit struct {
	Code int
	Err  error
}

func (e Exit) Error() string { return fmt.Sprint(e.Err) }

type usage string

func (u usage) Error() string { return string(u) }

// Usage is the error of wrong flags or arguments. The exit code is 2.
func Usage(format string, args ...any) error { return usage(fmt.Sprintf(format, args...)) }

// Execute parses the flags, runs the command and returns the exit code.
func (c *Command) Execute(s Streams, args []string) int {
	flags := flag.NewFlagSet(c.Name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	run := c.Flags(flags)
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		c.help(s.Out, flags)
		return 0
	case err != nil:
		err = usage(err.Error())
	default:
		if i := slices.IndexFunc(flags.Args(), func(arg string) bool { return len(arg) > 1 && arg[0] == '-' }); i > 0 {
			err = Usage("%s is behind %s: flags come first", flags.Arg(i), flags.Arg(0))
		} else {
			err = run(s, flags.Args())
		}
	}
	if err == nil {
		return 0
	}
	if u, ok := errors.AsType[usage](err); ok {
		_, _ = fmt.Fprintf(s.Err, "ratelimit %s: %s\n%sratelimit %[1]s -h explains it\n", c.Name, u, c.usage()) // without stderr there is no place for an error
		return 2
	}
	exit, ok := errors.AsType[Exit](err)
	if !ok || exit.Err != nil {
		_, _ = fmt.Fprintln(s.Err, err)
	}
	return cmp.Or(exit.Code, 1)
}

func (c *Command) usage() string {
	return strings.TrimRight(fmt.Sprintf("usage: ratelimit %s [flags] %s", c.Name, c.Args), " ") + "\n"
}

func (c *Command) help(w io.Writer, flags *flag.FlagSet) {
	_, _ = fmt.Fprintf(w, "%s\n%s\nflags:\n", c.usage(), c.Help) // nobody to tell
	flags.SetOutput(w)
	flags.PrintDefaults()
}
