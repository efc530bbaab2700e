package headers_test

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The grammar of RFC 9651 for lists without inner lists, as expressions: a second opinion
// on what the library reads.
const (
	textForm    = `"(?:[ !#-\[\]-~]|\\["\\])*"`
	integerForm = `-?[0-9]{1,15}`
	valueForm   = textForm + `|%"(?:[ !#$&-~]|%[0-9a-f]{2})*"|-?[0-9]{1,12}\.[0-9]{1,3}|@?` + integerForm + `|\?[01]` +
		`|:(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?:|[A-Za-z*][A-Za-z0-9:/!#$%&'*+.^_|~` + "`-]*"
	parameterForm = `; *([a-z*][a-z0-9_.*-]*)(?:=(` + valueForm + `))?`
	itemForm      = `(` + textForm + `)((?:` + parameterForm + `)*)`
)

var (
	grammar   = regexp.MustCompile(`^ *(?:` + itemForm + `(?:[ \t]*,[ \t]*` + itemForm + `)*[ \t]*)?$`)
	anItem    = regexp.MustCompile(itemForm)
	parameter = regexp.MustCompile(parameterForm)
	aCount    = regexp.MustCompile(`^(?:-0+|[0-9]{1,15})$`)
)

// byGrammar reads the items of a field, with the names of two parameters. It returns false if
// a client has to ignore the field.
func byGrammar(line, units, seconds string) (items []listed, ok bool) {
	if !grammar.MatchString(line) {
		return nil, false
	}
	for _, found := range anItem.FindAllStringSubmatch(line, -1) {
		item := listed{name: strings.NewReplacer(`\"`, `"`, `\\`, `\`).Replace(found[1][1 : len(found[1])-1]), units: -1, seconds: -1}
		values := map[string]string{}
		for _, p := range parameter.FindAllStringSubmatch(found[2], -1) {
			if escaped, ok := strings.CutPrefix(p[2], `%"`); ok {
				if plain, err := url.PathUnescape(escaped); err != nil || !utf8.ValidString(plain) {
					return nil, false
				}
			}
			values[p[1]] = p[2] // of two, the last
		}
		for name, n := range map[string]*int64{units: &item.units, seconds: &item.seconds} {
			text, there := values[name]
			if there && !aCount.MatchString(text) || name == units && !there {
				return nil, false
			}
			if there {
				*n, _ = strconv.ParseInt(text, 10, 64)
			}
		}
		items = append(items, item)
	}
	return items, true
}

// tightest returns what Writers keep: of the items of one name, that with the fewest units.
func tightest(items []listed) map[string]listed {
	kept := map[string]listed{}
	for _, item := range items {
		there, ok := kept[item.name]
		if !ok || item.units < there.units || item.units == there.units && item.seconds > there.seconds {
			kept[item.name] = item
		}
	}
	return kept
}

// longestWait returns how long clients wait for items that have nothing left; 0 if they
// need not.
func longestWait(items []listed) (wait time.Duration) {
	for _, item := range items {
		if item.units == 0 && item.seconds >= 0 && item.seconds <= int64(year/time.Second) {
			wait = max(wait, time.Duration(item.seconds)*time.Second, time.Second)
		}
	}
	return wait
}
