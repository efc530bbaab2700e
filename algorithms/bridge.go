package algorithms

import (
	"context"
	"net"
	"time"

	"github.com/seed75154129/ratelimit/internal/bridge"
)

func init() {
	bridge.FromAlgorithms = bridge.Algorithms[*Redis, *Memory, Limit, Check, Result, Charge]{
		ClassOf:      classOf,
		NotPermitted: notPermitted,
		BatchOf:      batchOf,

		Shard:        (*Redis).shard,
		Names:        (*Redis).names,
		Probe:        func(ctx context.Context, r *Redis, shard int) error { return r.probe(ctx, shard) },
		Dial:         func(ctx context.Context, r *Redis, shard int) (net.Conn, error) { return r.dial(ctx, shard) },
		ProbeRequest: (*Redis).probeRequest,
		Beat: func(ctx context.Context, r *Redis, id string, lease time.Duration) (int, error) {
			return r.beat(ctx, id, lease)
		},
		Join:           (*Redis).join,
		Leave:          (*Redis).leave,
		Warm:           func(ctx context.Context, r *Redis) error { return r.warm(ctx) },
		Drop:           (*Redis).drop,
		Idle:           (*Redis).whenIdle,
		Budget:         (*Redis).budget,
		Warnings:       (*Redis).warnings,
		ServerWarnings: func(ctx context.Context, r *Redis) ([]string, error) { return r.serverWarnings(ctx) },

		Follow:   (*Memory).follow,
		Unfollow: (*Memory).unfollow,
		Stats:    (*Memory).stats,
		Clock:    func(m *Memory, now func() time.Time) { m.clock = now },
		Banned:   (*Memory).banned,

		AlgorithmOf: func(l Limit) string { return string(l.algorithm()) },
		IsQueue: func(l Limit) bool {
			row := l.row()
			return row != nil && row.queue
		},
		Impatient: (*Result).impatient,

		StateOf:      stateOf,
		Block:        func(r *Result) int64 { return r.charge.at },
		JoinFollowed: func(r, older *Result, units int64) { r.followed += min(older.followed, units) },
		InBlock:      func(r *Result, window int64) { r.charge = placed{at: window} },
		NewResults:   newResults,
		Update:       (*Result).update,
		SettleBy:     (*Result).settleBy,
		Again:        again,
		Valid:        valid,
		InvalidBan: func(c *Check) []error {
			if c.Ban == (Ban{}) {
				return nil
			}
			return c.Ban.invalid()
		},
		Spare:     func(c *Check) { c.spared = true },
		BanBegins: func(r *Result) bool { return r.banBegins },
		BannedFor: func(r *Result) time.Duration { return r.bannedFor },
	}
}
