package redistest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	masterCount  = 3
	slotCount    = 16384
	clusterEvery = 20 * time.Millisecond // six nodes are asked each time
)

// Cluster is a Redis Cluster of three masters with a replica each. The roles
// are those at the start: a failover changes them, and nothing here follows. A
// node that restarts has lost its keys, but knows its place in the cluster.
type Cluster struct {
	Addrs    []string  // of all nodes
	Nodes    []*Server // Masters, then Replicas
	Masters  []*Server // each with a third of the slots, in order
	Replicas []*Server // Replicas[i] is that of Masters[i]
}

// StartCluster starts a cluster and returns when all its nodes agree on it,
// which takes Redis two seconds. args are added to each node's command line:
// "--cluster-require-full-coverage", "no" lets two masters go on without the
// third. A master counts as failed after a second of silence.
func StartCluster(tb testing.TB, args ...string) *Cluster {
	tb.Helper()
	return startCluster(tb, nil, args)
}

// StartClusterWithClock is StartCluster with nodes that share one clock, which
// only the test moves; it begins at the present. However far it moves, no node
// takes another for failed. To be called outside bubbles.
func StartClusterWithClock(tb testing.TB, args ...string) (*Cluster, *Clock) {
	tb.Helper()
	clock, env, clockArgs := clockFor(tb)

	// Until the nodes have found each other they need a clock that goes.
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(pollEvery):
				clock.Set(time.Now())
			}
		}
	}()
	halt := sync.OnceFunc(func() { close(stop); <-stopped })
	defer halt() // also if the cluster does not start

	c := startCluster(tb, env, append(clockArgs, args...))
	halt()
	var errs []error
	outside(func() {
		for _, s := range c.Nodes {
			errs = append(errs, s.ask("CONFIG", "SET", "cluster-node-timeout", math.MaxInt32).Err(), s.follows(clock))
		}
	})
	if err := errors.Join(errs...); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
	return c, clock
}

func startCluster(tb testing.TB, env, args []string) *Cluster {
	tb.Helper()
	args = append([]string{
		"--cluster-enabled", "yes",
		"--cluster-config-file", "nodes.conf",
		"--cluster-node-timeout", "1000",
		"--repl-diskless-sync-delay", "0",
	}, args...)
	c := &Cluster{}
	for range 2 * masterCount {
		s := newServer(tb, tb.TempDir(), env)
		s.start(tb, freePort, args)
		c.Nodes = append(c.Nodes, s)
		c.Addrs = append(c.Addrs, s.Addr)
	}
	c.Masters, c.Replicas = c.Nodes[:masterCount], c.Nodes[masterCount:]

	var err error
	outside(func() { err = c.form() })
	if err != nil {
		tb.Fatalf("redistest: form a cluster: %v\n%s", err, c.Nodes[0].Log())
	}
	return c
}

// form makes a cluster of the empty nodes. redis-cli --cluster create does the
// same in six seconds, because it sleeps.
func (c *Cluster) form() error {
	var errs []error
	do := func(s *Server, args ...any) { errs = append(errs, s.ask(args...).Err()) }
	for i, s := range c.Nodes {
		if i < masterCount {
			do(s, "CLUSTER", "ADDSLOTSRANGE", firstSlot(i), firstSlot(i+1)-1)
		}
		// Without epochs of their own the nodes would first have to settle
		// who is right about the slots.
		do(s, "CLUSTER", "SET-CONFIG-EPOCH", i+1)
	}
	meet := func() {
		for _, s := range c.Nodes[1:] {
			host, port := s.hostPort()
			do(c.Nodes[0], "CLUSTER", "MEET", host, port)
		}
	}
	meet()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	met := time.Now()
	err := c.untilAll(func(s *Server) error {
		err := s.knowsAll()
		if err != nil && time.Since(met) > 2*time.Second {
			meet() // nodes give up a handshake that takes longer than their timeout
			met = time.Now()
		}
		return err
	})
	if err != nil {
		return err
	}
	for i, replica := range c.Replicas {
		id, err := c.Masters[i].clusterID()
		if err != nil {
			return err
		}
		do(replica, "CLUSTER", "REPLICATE", id)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := c.untilAll((*Server).replicates); err != nil {
		return err
	}
	for _, master := range c.Masters {
		// CLUSTER SLOTS hides a replica that has replicated nothing yet, so
		// clients would start without knowing it. This leaves no key.
		do(master, "FLUSHALL")
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.untilAll((*Server).isReady)
}

// firstSlot is the first slot of master i.
func firstSlot(i int) int { return i * slotCount / masterCount }

func (c *Cluster) untilAll(ready func(*Server) error) error {
	for _, s := range c.Nodes {
		err := waitUntil(s.proc.exited, clusterEvery, func() error { return ready(s) })
		if err != nil {
			return fmt.Errorf("node %s: %w", s.Addr, err)
		}
	}
	return nil
}

// knowsAll is nil once the node has met all others.
func (s *Server) knowsAll() error {
	view, err := s.ask("CLUSTER", "NODES").Text()
	if err == nil && (strings.Count(view, "\n") != 2*masterCount || strings.Contains(view, "handshake")) {
		err = fmt.Errorf("has not met all others:\n%s", view)
	}
	return err
}

// replicates is nil once the node has its replica, or is a replica in sync.
func (s *Server) replicates() error {
	info, err := s.ask("INFO", "replication").Text()
	if err == nil && !strings.Contains(info, "state=online") && !strings.Contains(info, "master_link_status:up") {
		err = fmt.Errorf("does not replicate:\n%s", info)
	}
	return err
}

// isReady is nil once the node serves commands, and gives clients the whole
// topology: they may ask any node.
func (s *Server) isReady() error {
	info, err := s.ask("CLUSTER", "INFO").Text()
	if err != nil {
		return err
	}
	slots, err := s.slots()
	if err != nil {
		return err
	}
	ready := strings.Contains(info, "cluster_state:ok") && len(slots) == masterCount
	for _, r := range slots {
		ready = ready && len(r.Nodes) == 2
	}
	if !ready {
		return fmt.Errorf("not ready: %v\n%s", slots, info)
	}
	return nil
}

// slots is the topology as a client sees it that asks this node. CLUSTER
// SHARDS, which is newer, lists replicas that no client is told of.
func (s *Server) slots() ([]redis.ClusterSlot, error) {
	cmd := redis.NewClusterSlotsCmd(context.Background(), "CLUSTER", "SLOTS")
	s.process(cmd)
	return cmd.Result()
}

func (s *Server) clusterID() (string, error) { return s.ask("CLUSTER", "MYID").Text() }

// ask runs one command on a connection of its own: one kept since before a
// restart would fail. To be called outside bubbles.
func (s *Server) ask(args ...any) *redis.Cmd {
	cmd := redis.NewCmd(context.Background(), args...)
	s.process(cmd)
	return cmd
}

func (s *Server) process(cmd redis.Cmder) {
	client := redis.NewClient(s.Options())
	defer func() { _ = client.Close() }()
	_ = client.Process(context.Background(), cmd) // cmd keeps the error
}

// Client returns a new client of the whole cluster, closed in tb's Cleanup. It fails
// fast like that of a Server, but follows redirects, and reads the topology
// again every second: go-redis's own 60 s are 60 s of errors after a failover.
func (c *Cluster) Client(tb testing.TB) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs:                      c.Addrs,
		MaxRedirects:               2, // MOVED, then ASK; it also counts retries
		ClusterStateReloadInterval: time.Second,
		MaxRetries:                 -1,
		DialerRetries:              1,
		DialTimeout:                dialTimeout,
		ReadTimeout:                ioTimeout,
		WriteTimeout:               ioTimeout,
		ContextTimeoutEnabled:      true,
		DisableIdentity:            true,
		MaintNotificationsConfig:   noMaintNotifications(),
	})
	tb.Cleanup(func() { _ = client.Close() })
	return client
}
