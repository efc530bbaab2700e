// Package script has the Lua scripts that Redis runs, whole, as *.lua. They are
// generated from src: change them there, and run `go generate ./internal/script`.
package script

import (
	_ "embed"

	"github.com/seed75154129/ratelimit/internal/transport"
)

//go:generate go run ./gen

var (
	//go:embed take.lua
	take string
	//go:embed take_joint.lua
	takeJoint string
	//go:embed take_bans.lua
	takeBans string
	//go:embed bans.lua
	bans string
	//go:embed settle.lua
	settle string
	//go:embed settle_kept.lua
	settleKept string
	//go:embed renew.lua
	renew string
	//go:embed instances.lua
	instances string
)

// The scripts. Each says at its top what it does.
var (
	TakeJoint  = transport.NewScript(takeJoint, nil)
	Take       = transport.NewScript(take, ParseReply).JoinedBy(TakeJoint)
	TakeBans   = transport.NewScript(takeBans, ParseReply)
	Bans       = transport.NewScript(bans, nil)
	Settle     = transport.NewScript(settle, nil)
	SettleKept = transport.NewScript(settleKept, nil)
	Renew      = transport.NewScript(renew, nil)
	Instances  = transport.NewScript(instances, nil)
)

// All are the scripts that decisions, settlements and heartbeats run.
var All = []*transport.Script{Take, TakeJoint, TakeBans, Bans, Settle, SettleKept, Renew, Instances}
