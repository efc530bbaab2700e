// Package script has the Lua scripts that Redis runs, whole, as *.lua. They are
// generated from src: change them there, and run `go generate ./internal/script`.
package script

import (
	"embed"

	"github.com/seed75154129/ratelimit/internal/transport"
)

//go:generate go run ./gen

//go:embed *.lua
var files embed.FS

// script returns the script in a file.
func script(name string, decode func(string) ([]int64, error)) *transport.Script {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	return transport.NewScript(string(text), decode)
}

// The scripts. Each says at its top what it does.
var (
	TakeJoint  = script("take_joint.lua", nil)
	Take       = script("take.lua", ParseReply).JoinedBy(TakeJoint)
	TakeBans   = script("take_bans.lua", ParseReply)
	TakeLeast  = script("take_least.lua", ParseReply)
	Bans       = script("bans.lua", nil)
	Settle     = script("settle.lua", nil)
	SettleKept = script("settle_kept.lua", nil)
	Renew      = script("renew.lua", nil)
	Instances  = script("instances.lua", nil)
)

// All are the scripts that decisions, settlements and heartbeats run.
var All = []*transport.Script{Take, TakeJoint, TakeBans, TakeLeast, Bans, Settle, SettleKept, Renew, Instances}
