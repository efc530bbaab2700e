package keyfunc

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"github.com/seed75154129/ratelimit/internal/pattern"
)

// account returns the one spelling of the name of an account. Values that are equal under
// [strings.EqualFold] have the same, as they often are one account, and so do whole numbers.
// A value has none if it holds what databases ignore or programs drop.
func account(value string) (string, error) {
	value = strings.TrimSpace(value)
	if value == "" {
		return "", errors.New("the value is empty")
	}
	var before rune
	for _, r := range value {
		if pattern.Invisible(r) || r == unicode.ReplacementChar || unicode.IsMark(r) && !bearsMarks(before, r) {
			return "", fmt.Errorf("the value has the character %U, which many databases ignore", r)
		}
		before = r
	}
	if _, err := strconv.ParseFloat(value, 64); (err == nil || errors.Is(err, strconv.ErrRange)) && strings.ContainsAny(value, digits) {
		whole := strings.TrimLeft(value, "+-")
		if strings.Trim(whole, digits) != "" {
			return "", errors.New("the value is a number with several spellings")
		}
		if whole = cmp.Or(strings.TrimLeft(whole, "0"), "0"); value[0] == '-' && whole != "0" {
			whole = "-" + whole
		}
		return whole, nil
	}
	return strings.Map(fold, value), nil
}

const digits = "0123456789"

// bearsMarks reports whether a combining mark is one of a script that is written with marks,
// such as Devanagari and Thai, behind a letter of such a script. Databases ignore accents that
// are marks of their own, which letters of the scripts below need not have.
func bearsMarks(letter, mark rune) bool {
	return !unicode.Is(unicode.Inherited, mark) && (unicode.IsLetter(letter) || unicode.IsMark(letter)) && !unicode.In(letter, unicode.Latin, unicode.Greek, unicode.Cyrillic)
}
