package algorithms

import (
	"crypto/sha1" //nolint:gosec // Redis names scripts by their SHA-1.
	_ "embed"
	"encoding/hex"
)

//go:embed lua/fixed_window.lua
var fixedWindowLua string

//go:embed lua/sliding_window.lua
var slidingWindowLua string

//go:embed lua/sliding_log.lua
var slidingLogLua string

//go:embed lua/bucket.lua
var bucketLua string

//go:embed lua/take.lua
var takeLua string

//go:embed lua/settle.lua
var settleLua string

// A script declares its keys and uses nothing that Redis since 5, or miniredis,
// does not have.
type script struct{ text, sha string }

var (
	takeScript   = newScript(withSteps(takeLua))
	settleScript = newScript(withSteps(settleLua))
)

// withSteps is a script that uses the steps.
func withSteps(main string) string {
	return fixedWindowLua + slidingWindowLua + slidingLogLua + bucketLua + main
}

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text)) //nolint:gosec // as above
	return &script{text: text, sha: hex.EncodeToString(sum[:])}
}
