package keyfunc

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// fromForm returns the field of a form.
func fromForm(body []byte, f field) (string, error) {
	if beginsAsJSON(body) {
		return "", errors.New("the form begins as JSON does")
	}
	if bytes.IndexByte(body, ';') >= 0 {
		body = bytes.ReplaceAll(body, []byte(";"), []byte("&"))
	}
	in := f.inForm(body)
	if err := in.only(f.name); err != nil {
		return "", err
	}
	if string(in.name) != f.name {
		return "", fmt.Errorf("field %q is spelled %.64q", f.name, in.name)
	}
	return url.QueryUnescape(string(in.value))
}

// inForm finds the field in a form, whose pairs are separated by '&'. It reads each
// byte once or twice, and allocates only for names that are long and escaped.
func (f field) inForm(form []byte) (in found) {
	var buffer [64]byte
	for at := 0; at < len(form); at++ { // at a pair, then at the '&' behind it
		name, escaped := at, false
		for ; at < len(form) && form[at] != '&' && form[at] != '='; at++ {
			escaped = escaped || form[at] == '%' || form[at] == '+'
		}
		plain, value := form[name:at], at
		if at < len(form) && form[at] == '=' {
			value++
			if n := bytes.IndexByte(form[at:], '&'); n >= 0 {
				at += n
			} else {
				at = len(form)
			}
		}
		if len(plain) < f.shortest {
			continue
		}
		if escaped {
			var ok bool
			if plain, ok = appendUnescaped(buffer[:0], plain); !ok {
				continue
			}
		}
		if f.resembles(plain) {
			in = found{in.times + 1, bytes.Clone(plain), form[value:at]}
		}
	}
	return in
}

// appendUnescaped appends a name of a form to plain, as url.QueryUnescape reads it.
func appendUnescaped(plain, name []byte) (_ []byte, ok bool) {
	for i := 0; i < len(name); i++ {
		switch c := name[i]; c {
		case '+':
			plain = append(plain, ' ')
		case '%':
			if i+2 >= len(name) || !isHex(name[i+1]) || !isHex(name[i+2]) {
				return nil, false
			}
			plain = append(plain, byte(unhex(name[i+1:i+3])))
			i += 2
		default:
			plain = append(plain, c)
		}
	}
	return plain, true
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// unhex returns the number that hexadecimal digits stand for.
func unhex(digits []byte) (n rune) {
	for _, c := range digits {
		n <<= 4
		if c <= '9' {
			n |= rune(c - '0')
		} else {
			n |= rune(c|0x20-'a') + 10
		}
	}
	return n
}

// inQuery reports whether a query has the field, also where semicolons separate, as
// they do behind http.AllowQuerySemicolons.
func (f field) inQuery(query string) bool {
	return query != "" && f.inForm([]byte(strings.ReplaceAll(query, ";", "&"))).times > 0
}
