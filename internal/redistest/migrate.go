package redistest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

// Owner is the master that serves slot, as the masters themselves see it.
func (c *Cluster) Owner(tb testing.TB, slot int) *Server {
	tb.Helper()
	var owner *Server
	var err error
	outside(func() { owner, err = c.owner(slot) })
	if err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	return owner
}

// BeginMigration leaves slot half migrated from its owner to the next master:
// keys that exist are still served by the owner, all others are redirected with
// ASK, and commands with keys of both kinds answer TRYAGAIN. finish moves the
// keys and the slot, also under load; calling it again does nothing.
func (c *Cluster) BeginMigration(tb testing.TB, slot int) (finish func()) {
	tb.Helper()
	from := c.Owner(tb, slot)
	to := c.Masters[(slices.Index(c.Masters, from)+1)%masterCount]
	m := migration{c, slot, from, to}
	run := func(step func() error) {
		tb.Helper()
		var err error
		outside(func() { err = step() })
		if err != nil {
			tb.Fatalf("redistest: migrate slot %d from %s to %s: %v", slot, from.Addr, to.Addr, err)
		}
	}
	run(m.begin)
	var once sync.Once
	return func() {
		tb.Helper()
		once.Do(func() { run(m.finish) })
	}
}

func (c *Cluster) owner(slot int) (*Server, error) {
	for _, s := range c.Masters {
		slots, err := s.slots()
		if err != nil {
			return nil, err
		}
		for _, r := range slots {
			if r.Start <= slot && slot <= r.End && r.Nodes[0].Addr == s.Addr {
				return s, nil
			}
		}
	}
	return nil, fmt.Errorf("no master claims slot %d", slot)
}

type migration struct {
	cluster  *Cluster
	slot     int
	from, to *Server
}

func (m migration) begin() error {
	fromID, err := m.from.clusterID()
	if err != nil {
		return err
	}
	toID, err := m.to.clusterID()
	if err != nil {
		return err
	}
	// Importing first: a redirect must not arrive before it is welcome.
	if err := m.to.ask("CLUSTER", "SETSLOT", m.slot, "IMPORTING", fromID).Err(); err != nil {
		return err
	}
	return m.from.ask("CLUSTER", "SETSLOT", m.slot, "MIGRATING", toID).Err()
}

func (m migration) finish() error {
	host, port := m.to.hostPort()
	for {
		keys, err := m.from.ask("CLUSTER", "GETKEYSINSLOT", m.slot, 100).Slice()
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break // for good: the owner creates no keys in a slot it gives away
		}
		move := []any{"MIGRATE", host, port, "", 0, ioTimeout.Milliseconds(), "KEYS"}
		if err := m.from.ask(append(move, keys...)...).Err(); err != nil {
			return err
		}
	}
	toID, err := m.to.clusterID()
	if err != nil {
		return err
	}
	// The new owner first, so that at no time nobody owns the slot. The rest
	// would learn it by gossip, but a test should not have to wait for that.
	for _, s := range slices.Concat([]*Server{m.to, m.from}, m.cluster.Masters) {
		if err := s.ask("CLUSTER", "SETSLOT", m.slot, "NODE", toID).Err(); err != nil {
			return err
		}
	}
	return nil
}
