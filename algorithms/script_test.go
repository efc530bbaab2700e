package algorithms

import (
	"os"
	"path/filepath"

	"github.com/seed75154129/ratelimit/internal/script"
	"github.com/seed75154129/ratelimit/internal/transport"
)

// LUA_DIR replaces the folder of the scripts, so that tools/mutate can try changes
// to them without building the tests for each.
func init() {
	dir := os.Getenv("LUA_DIR")
	if dir == "" {
		return
	}
	replace := func(s *transport.Script, file string, decode func(string) ([]int64, error)) {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			panic(err)
		}
		*s = *transport.NewScript(string(text), decode)
	}
	replace(script.Take, "take.lua", script.ParseReply)
	replace(script.TakeJoint, "take_joint.lua", nil)
	script.Take.JoinedBy(script.TakeJoint) // which replace has undone
	replace(script.TakeBans, "take_bans.lua", script.ParseReply)
	replace(script.Bans, "bans.lua", nil)
	replace(script.Settle, "settle.lua", nil)
	replace(script.SettleKept, "settle_kept.lua", nil)
}
