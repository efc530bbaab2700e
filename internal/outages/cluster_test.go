package outages

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed75154129/ratelimit/algorithms"
	"github.com/seed75154129/ratelimit/internal/redistest"
)

// A node that is gone concerns those whom it counts, until its replica has
// taken over; nobody else.
func TestClusterLosesAMaster(t *testing.T) {
	for _, how := range selection([]string{"kill -9", "SIGSTOP"}, 1) {
		t.Run(how, func(t *testing.T) {
			cluster := startCluster(t)
			r := load{client: cluster.limiter(t), length: 6 * time.Second}.start(t)
			lost := cluster.Owner(t, cluster.slotOf(t, abuser))
			replica := cluster.replicaOf(lost)
			concerned := cluster.clientsOf(t, r, lost)
			if len(concerned) == 0 || len(concerned) == len(r.clients) {
				t.Fatalf("%d of %d clients are concerned", len(concerned), len(r.clients))
			}
			r.at(begins)
			r.outage(func() {
				if how == "kill -9" {
					lost.Stop(t)
				} else {
					lost.Pause(t)
				}
			})
			r.back(func() { untilMaster(t, replica) })
			t.Logf("the replica took over after %v", (r.over - r.began).Round(time.Millisecond))
			if how == "SIGSTOP" {
				r.at(5 * time.Second)
				lost.Resume(t) // and it believes for a moment that it is a master
			}
			r.check(promise{
				row:   row{7, "cluster: " + how + " of a master"},
				waits: 2 * r.underWay(), // in each of its shards the limiter has to notice
				back:  time.Second,
				// Each shard of the limiter is down by itself, so "something" is
				// down once, and once more if the new master is late.
				opens:  2,
				loses:  r.underWay(),
				spared: func(client string) bool { return !concerned[client] },
			})
		})
	}
}

// A planned failover costs at most what is under way at that moment.
func TestClusterFailsOverAsPlanned(t *testing.T) {
	onlyAll(t)
	cluster := startCluster(t)
	r := load{client: cluster.limiter(t), length: total}.start(t)
	replica := cluster.replicaOf(cluster.Owner(t, cluster.slotOf(t, abuser)))
	r.at(begins)
	r.outage(func() { must(t, replica.Client(t).ClusterFailover(t.Context())) })
	r.back(func() { untilMaster(t, replica) })
	s := r.check(promise{
		row:   row{8, "cluster: planned failover"},
		waits: 2 * r.underWay(), // the old master holds up writes until the new one has them all
		back:  soon,
		opens: 1,
	})
	if most := r.underWay(); s.alone > most && !r.busy() {
		t.Errorf("%d requests were decided without Redis, want at most %d", s.alone, most)
	}
}

// Slots move while their clients send requests, and nobody notices.
func TestClusterMovesSlots(t *testing.T) {
	onlyAll(t)
	cluster := startCluster(t)
	r := load{client: cluster.limiter(t), length: 4 * time.Second}.start(t)
	for n, client := range r.clients[:8] {
		r.at(time.Duration(n) * 450 * time.Millisecond)
		var finish func()
		r.timed(func() { finish = cluster.BeginMigration(t, cluster.slotOf(t, client)) })
		r.at(time.Duration(n)*450*time.Millisecond + 300*time.Millisecond)
		r.timed(finish)
	}
	r.check(promise{
		row:   row{9, "cluster: slots move"},
		waits: r.strays(),
	})
}

// timed runs commands that make nodes write to disk, which they answer nobody
// meanwhile: a disk that is busy is a machine that is.
func (r *run) timed(commands func()) {
	begin := time.Now()
	commands()
	r.machine.note(r.begin, begin, time.Since(begin))
}

// A cluster is one whose two masters go on without the third.
type cluster struct {
	*redistest.Cluster
	admin *redis.Client // of one of its masters
}

func startCluster(t *testing.T) cluster {
	c := redistest.StartCluster(t, "--cluster-require-full-coverage", "no")
	return cluster{c, c.Masters[0].Client(t)}
}

// limiter is a client as users are told to make it.
func (c cluster) limiter(t *testing.T) *redis.ClusterClient {
	client := redis.NewClusterClient(algorithms.FailFast(&redis.ClusterOptions{Addrs: c.Addrs}))
	t.Cleanup(func() { client.Close() })
	return client
}

func (c cluster) replicaOf(master *redistest.Server) *redistest.Server {
	for i, m := range c.Masters {
		if m == master {
			return c.Replicas[i]
		}
	}
	panic("no master of this cluster")
}

// clientsOf are the clients that a node counts, and those in a shard of the
// limiter that has a slot of it.
func (c cluster) clientsOf(t *testing.T, r *run, node *redistest.Server) map[string]bool {
	t.Helper()
	const shard = 256 // slots
	clients := map[string]bool{}
	for _, client := range append(r.clients, abuser, newcomer) {
		first := c.slotOf(t, client) / shard * shard
		if c.Owner(t, first) == node || c.Owner(t, first+shard-1) == node {
			clients[client] = true
		}
	}
	return clients
}

// untilMaster waits until a replica has become a master that its cluster, or
// its sentinels, know of.
func untilMaster(t *testing.T, replica *redistest.Server) {
	t.Helper()
	admin := replica.Client(t)
	eventually(t, func() error {
		info, err := admin.Info(t.Context(), "replication").Result()
		if err == nil && !strings.Contains(info, "role:master") {
			err = errors.New(info)
		}
		return err
	})
}

// eventually waits until f returns nil.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for {
		err := f()
		switch {
		case err == nil:
			return
		case time.Now().After(deadline):
			t.Fatal(err)
		}
		sleepUntil(t.Context(), time.Now().Add(5*time.Millisecond))
	}
}

// slotOf is the slot of all that is counted for a client.
func (c cluster) slotOf(t *testing.T, client string) int {
	t.Helper()
	slot, err := c.admin.ClusterKeySlot(t.Context(), client).Result()
	if err != nil {
		t.Fatal(err)
	}
	return int(slot)
}

// A sentinel's client follows the master, and a replica never counts as one.
func TestSentinelFailover(t *testing.T) {
	onlyAll(t)
	for _, how := range []string{"kill -9", "planned"} {
		t.Run(how, func(t *testing.T) {
			group := redistest.StartSentinel(t)
			at := group.Options()
			client := redis.NewFailoverClient(algorithms.FailFast(&redis.FailoverOptions{
				MasterName: at.MasterName, SentinelAddrs: at.SentinelAddrs,
			}))
			t.Cleanup(func() { client.Close() })
			r := load{client: client, length: 6 * time.Second}.start(t)
			r.at(begins)
			r.outage(func() {
				if how == "planned" {
					must(t, group.Sentinels[0].Client(t).Do(t.Context(), "SENTINEL", "FAILOVER", "limits"))
				} else {
					group.Master.Stop(t)
				}
			})
			r.back(func() { untilMaster(t, group.Replica) })
			t.Logf("the replica took over after %v", (r.over - r.began).Round(time.Millisecond))
			r.check(promise{
				row:   row{10, "sentinel: failover, " + how},
				waits: r.underWay(),
				back:  1500 * time.Millisecond,
				opens: 2,
				// Sentinel promotes the replica first and then tells the old
				// master; until then what it counts is lost.
				loses: 4 * r.rate,
			})
		})
	}
}
