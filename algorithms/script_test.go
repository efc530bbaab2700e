package algorithms

import (
	"os"

	"github.com/seed75154129/ratelimit/internal/transport"
)

// LUA_DIR replaces the folder of the scripts' folder, so that tools/mutate can
// try changes to them without building the tests for each.
func init() {
	if dir := os.Getenv("LUA_DIR"); dir != "" {
		files := os.DirFS(dir)
		*takeScript, *settleScript = *transport.NewScript(takeText(files), parseReply), *transport.NewScript(settleText(files), nil)
		*takeBansScript, *bansScript = *transport.NewScript(takeBansText(files), nil), *transport.NewScript(bansText(files), nil)
		*settleKeptScript = *transport.NewScript(settleKeptText(files), nil)
	}
}
