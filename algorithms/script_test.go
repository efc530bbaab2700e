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
	text := func(files ...string) (all string) {
		for _, file := range files {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				panic(err)
			}
			all += string(text)
		}
		return all
	}
	*script.Joint = *transport.NewScript(text("common.lua", "joint.lua"), nil)
	*script.Take = *transport.NewScript(text("common.lua", "take.lua"), script.ParseReply).JoinedBy(script.Joint)
	*script.Settle = *transport.NewScript(text("common.lua", "settle.lua"), nil)
}
