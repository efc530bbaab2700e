package keyfunc

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// fromJSON returns a field of a JSON object.
func fromJSON(body []byte, at, inForms place) (string, error) {
	if len(body) == 0 {
		return "", fmt.Errorf("%w: body: it is empty", ErrNoKey)
	}
	if !json.Valid(body) {
		return "", errors.New("it is not one valid JSON value")
	}
	for _, f := range inForms {
		if f.inForm(body).times > 0 {
			return "", fmt.Errorf("field %q is there too if it is read as a form", f.name)
		}
	}
	value := body
	for _, f := range at {
		in, err := f.inJSON(value)
		if err != nil {
			return "", err
		}
		if err := in.only(f.name); err != nil {
			return "", err
		}
		if !strings.EqualFold(string(in.name), f.name) {
			return "", fmt.Errorf("field %q is spelled %.64q", f.name, in.name)
		}
		if value = in.value; string(value) == "null" {
			return "", fmt.Errorf("%w: body: field %q is null", ErrNoKey, f.name)
		}
	}
	text, ok := scalar(value)
	if !ok {
		return "", fmt.Errorf("field %q is neither a string nor a number", at[len(at)-1].name)
	}
	return text, nil
}

// inJSON finds the field at the top of a valid JSON object. It reads each byte once,
// and allocates only for names that are long and escaped.
func (f field) inJSON(body []byte) (in found, _ error) {
	var buffer [64]byte
	at := skip(body, 0)
	if body[at] != '{' {
		return found{}, fmt.Errorf("the JSON around field %q is no object", f.name)
	}
	for at = skip(body, at+1); body[at] != '}'; at = skip(body, at) {
		end := valueEnd(body, at)
		name := body[at+1 : end-1]
		at = skip(body, end)
		end = valueEnd(body, at)
		if len(name) >= f.shortest {
			if name = unquote(buffer[:0], name); f.resembles(name) {
				in = found{in.times + 1, bytes.Clone(name), body[at:end]}
			}
		}
		at = end
	}
	return in, nil
}

// skip returns where blanks, commas and colons that begin at i end.
func skip(body []byte, i int) int {
	for {
		switch body[i] {
		case ' ', '\t', '\r', '\n', ',', ':':
			i++
		default:
			return i
		}
	}
}

// valueEnd returns where the JSON value ends that begins at i.
func valueEnd(body []byte, i int) int {
	switch body[i] {
	case '"':
		return stringEnd(body, i)
	case '{', '[':
		for depth := 0; ; i++ {
			switch body[i] {
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			case '"':
				i = stringEnd(body, i) - 1
			}
		}
	}
	for {
		switch body[i] {
		case ',', '}', ' ', '\t', '\r', '\n':
			return i
		}
		i++
	}
}

// stringEnd returns where the JSON string ends that begins at i.
func stringEnd(body []byte, i int) int {
	for i++; body[i] != '"'; i++ {
		if body[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// unquote returns what is inside of a valid JSON string, in the bytes of plain where
// there are escapes.
func unquote(plain, inside []byte) []byte {
	next := bytes.IndexByte(inside, '\\')
	if next < 0 {
		return inside
	}
	for next >= 0 {
		plain = append(plain, inside[:next]...)
		c := inside[next+1]
		inside = inside[next+2:]
		if c == 'u' {
			r := unhex(inside[:4])
			inside = inside[4:]
			if len(inside) >= 6 && inside[0] == '\\' && inside[1] == 'u' {
				if pair := utf16.DecodeRune(r, unhex(inside[2:6])); pair != unicode.ReplacementChar {
					r, inside = pair, inside[6:]
				}
			}
			plain = utf8.AppendRune(plain, r)
		} else {
			if i := strings.IndexByte("bfnrt", c); i >= 0 {
				c = "\b\f\n\r\t"[i]
			}
			plain = append(plain, c)
		}
		next = bytes.IndexByte(inside, '\\')
	}
	return append(plain, inside...)
}

// scalar returns the text of a JSON string or number.
func scalar(value []byte) (text string, ok bool) {
	if value[0] == '"' {
		return string(unquote(nil, value[1:len(value)-1])), true
	}
	return string(value), value[0] == '-' || '0' <= value[0] && value[0] <= '9'
}
