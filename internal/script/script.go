// Package script has the Lua scripts that Redis runs: common.lua, and behind it one of
// the others.
package script

import (
	_ "embed"

	"github.com/seed75154129/ratelimit/internal/transport"
)

var (
	//go:embed common.lua
	common string
	//go:embed take.lua
	take string
	//go:embed joint.lua
	joint string
	//go:embed settle.lua
	settle string
	//go:embed pulse.lua
	pulse string
)

// The scripts. Each says at its top what it does.
var (
	Joint  = transport.NewScript(common+joint, nil)
	Take   = transport.NewScript(common+take, ParseReply).JoinedBy(Joint)
	Settle = transport.NewScript(common+settle, nil)
	Pulse  = transport.NewScript(common+pulse, nil)
)

// All are the scripts that decisions, settlements and heartbeats run.
var All = []*transport.Script{Take, Joint, Settle, Pulse}
