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
	joint     *Script                             // runs several calls of this one; nil if there is none
}

// NewScript returns a script that answers with numbers or, where decode is not
// nil, with a string that decode turns into numbers.
func NewScript(text string, decode func(string) ([]int64, error)) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{text: text, sha: hex.EncodeToString(sum[:]), decode: decode}
}

// JoinedBy names the script that runs several calls of this one that differ only in
// their keys and in what is Own to each. It gets the keys of all, one call's after the
// other's; their arguments, with an empty text in place of what is a call's own; what is
// each call's own; and how many keys each call has.
//
// It answers with a string. For each call this has as many lines as the call has
// keys and one more, which together are the call's reply. If a call could not be
// run, and has written nothing, its first line is "!", the numbers of the keys that
// delayed the other calls, each behind a space, another "!", and the error. An
// error that begins with ALONE says that no call was run.
func (s *Script) JoinedBy(joint *Script) *Script {
	s.joint = joint
	return s
}

// Text is the Lua of the script.
func (s *Script) Text() string { return s.text }

// SHA is the name of the script in EVALSHA.
func (s *Script) SHA() string { return s.sha }
