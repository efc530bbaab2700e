package algorithms

import "fmt"

// A FailMode says what to do with a check when the store cannot count it. Its
// values are in package failmode; the zero value counts locally.
type FailMode int8

// failModes are the text forms, by value.
var failModes = [...]string{"local", "open", "closed"}

// String returns "local", "open" or "closed".
func (m FailMode) String() string {
	if !m.ok() {
		return fmt.Sprintf("FailMode(%d)", int8(m))
	}
	return failModes[m]
}

func (m FailMode) ok() bool { return m >= 0 && int(m) < len(failModes) }

// MarshalText returns the text form. It fails for a value that is not in package
// failmode.
func (m FailMode) MarshalText() ([]byte, error) {
	if !m.ok() {
		return nil, fmt.Errorf("unknown fail mode %d; use ratelimit.FailLocal, FailOpen or FailClosed", int8(m))
	}
	return []byte(failModes[m]), nil
}

// UnmarshalText reads the text form. If it fails, m is unchanged.
func (m *FailMode) UnmarshalText(text []byte) error {
	for i, name := range failModes {
		if name == string(text) {
			*m = FailMode(i)
			return nil
		}
	}
	return fmt.Errorf("unknown fail mode %q; write local, open or closed", text)
}
