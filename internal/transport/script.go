package transport

import (
	"crypto/sha1"
	"encoding/hex"
)

// A Script declares its keys and uses nothing that Redis since 6, or miniredis,
// does not have.
type Script struct {
	text, sha string
	decode    func(reply string) ([]int64, error) // nil: the reply is numbers already
}

// NewScript returns a script that answers with numbers or, where decode is not
// nil, with a string that decode turns into numbers.
func NewScript(text string, decode func(string) ([]int64, error)) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{text: text, sha: hex.EncodeToString(sum[:]), decode: decode}
}

// Text is the Lua of the script.
func (s *Script) Text() string { return s.text }

// SHA is the name of the script in EVALSHA.
func (s *Script) SHA() string { return s.sha }
