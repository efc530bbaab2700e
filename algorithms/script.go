package algorithms

import (
	"embed"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/seed75154129/ratelimit/internal/step"

	"github.com/seed75154129/ratelimit/internal/transport"
)

//go:embed lua/*.lua
var embedded embed.FS

var (
	takeScript       = transport.NewScript(takeText(embedded), parseReply)
	takeBansScript   = transport.NewScript(takeBansText(embedded), nil) // for requests with a check that has a Ban
	bansScript       = transport.NewScript(bansText(embedded), nil)
	settleScript     = transport.NewScript(settleText(embedded), nil)
	settleKeptScript = transport.NewScript(settleKeptText(embedded), nil) // for keys that are banned by hand
)

// corrections begins the part of a step's file that only lua/settle.lua needs.
const corrections = "\n-- correct: "

// stepsHere is the line of lua/take_fast.lua that stands for the steps.
const stepsHere = "  -- the steps\n"

// takeText is lua/take_fast.lua with the steps of the table in its loop.
func takeText(files fs.FS) string {
	before, after, _ := strings.Cut(luaFile(files, "take_fast"), stepsHere)
	var text strings.Builder
	text.WriteString(luaFile(files, "steps") + before)
	names, word := twins(), "if"
	for i, name := range names {
		deciding, _, _ := strings.Cut(luaFile(files, name), corrections)
		if _, alias := aliased(deciding, name); alias {
			continue
		}
		fmt.Fprintf(&text, "  %s code == '%d' or code == '-%[2]d'", word, i+1)
		for j := range names[i+1:] {
			other := names[i+1+j]
			if of, _ := aliased(luaFile(files, other), other); of == name {
				fmt.Fprintf(&text, " or code == '%d' or code == '-%[1]d'", i+j+2)
			}
		}
		text.WriteString(" then\n" + inLoop(deciding, name))
		word = "elseif"
	}
	return text.String() + "  end\n" + after
}

// aliased returns of which step a step's text only says that it is the same.
func aliased(text, name string) (of string, ok bool) {
	_, rest, ok := strings.Cut(text, "\nlocal "+name+" = ")
	of, _, _ = strings.Cut(rest, "\n")
	return of, ok
}

// inLoop is a step's text as it stands in a loop: what the function returns is
// assigned, what is on its second line only where it is needed. A step that does
// not read its state from a string is shown by its numbers.
func inLoop(text, name string) string {
	const results, rare = "at, fits, left_us, charge", "clock_error, form, a, b, c"
	before, function, found := strings.Cut(text, "local function "+name+"(key, now, p)\n")
	body, values, ends := strings.Cut(function, "\n  return ")
	values, _, closed := strings.Cut(values, "\nend\n")
	values, rest, two := strings.Cut(values, ",\n")
	if !found || !ends || !closed || !two {
		panic("lua/" + name + ".lua: no function " + name + "(key, now, p) that ends with a return of two lines")
	}
	rest = rare + " = " + strings.TrimSpace(rest)
	if strings.Contains(body, " was") {
		rest = "raw = was\n  if healed then\n    " + rest + "\n  end\n"
	} else {
		rest += "\n  raw = format('%d %d %d', a, b, c)\n"
	}
	return before + body + "\n  " + results + " = " + values + "\n  " + rest
}

// takeBansText is lua/take_bans.lua around lua/take.lua. sizes says how many
// arguments each step has, as one that fails does not.
func takeBansText(files fs.FS) string {
	var sizes []string
	for i := range step.Table {
		if row := &step.Table[i]; int(row.Code) > len(sizes) {
			sizes = append(sizes, strconv.Itoa(len(row.Step.Arguments(nil, step.Params{}))))
		}
	}
	return deciding(files) + "\nlocal sizes = { " + strings.Join(sizes, ", ") + " }\n" +
		luaFile(files, "ban") + function(files, "take") + luaFile(files, "take_bans")
}

// bansText is lua/bans.lua, which needs no steps.
func bansText(files fs.FS) string {
	return luaFile(files, "steps") + luaFile(files, "functions") + luaFile(files, "ban") + luaFile(files, "bans")
}

// deciding is what the scripts that decide share.
func deciding(files fs.FS) string {
	var text strings.Builder
	text.WriteString(luaFile(files, "steps") + luaFile(files, "functions"))
	names := twins()
	for _, name := range names {
		deciding, _, _ := strings.Cut(luaFile(files, name), corrections)
		text.WriteString(deciding)
	}
	fmt.Fprintf(&text, "\nlocal steps = { %s }\n", strings.Join(names, ", "))
	return text.String()
}

// settleText is lua/settle.lua behind the steps and their corrections.
func settleText(files fs.FS) string { return correcting(files) + luaFile(files, "settle") }

// settleKeptText is lua/settle_kept.lua around lua/settle.lua.
func settleKeptText(files fs.FS) string {
	return correcting(files) + luaFile(files, "ban") + function(files, "settle") + luaFile(files, "settle_kept")
}

// function makes a file a Lua function of its name without arguments.
func function(files fs.FS, name string) string {
	return "\nlocal function " + name + "()\n" + luaFile(files, name) + "end\n"
}

// correcting is what the scripts that settle share.
func correcting(files fs.FS) string {
	var text strings.Builder
	text.WriteString(luaFile(files, "steps") + luaFile(files, "functions"))
	names := twins()
	for _, name := range names {
		text.WriteString(luaFile(files, name))
	}
	fmt.Fprintf(&text, "\nlocal steps = { %s }\nlocal corrections = { correct_%s }\n",
		strings.Join(names, ", "), strings.Join(names, ", correct_"))
	return text.String()
}

// twins names the steps in Lua, in the order of their codes.
func twins() (names []string) {
	for i := range step.Table {
		if int(step.Table[i].Code) > len(names) {
			names = append(names, step.Table[i].Lua)
		}
	}
	return names
}

func luaFile(files fs.FS, name string) string {
	text, err := fs.ReadFile(files, "lua/"+name+".lua")
	if err != nil {
		panic(err) // a row of the table without its file
	}
	return string(text)
}

// scripts are all that decisions, settlements and heartbeats run.
var scripts = []*transport.Script{takeScript, takeBansScript, bansScript, settleScript, settleKeptScript, instancesScript}
