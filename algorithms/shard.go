package algorithms

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// slotsPerShard groups a cluster's 16384 slots. A shard is never on two nodes
// in a cluster whose nodes own whole ranges, as all tools lay them out.
const slotsPerShard = 256

// Shards is how many parts of the store can fail on their own: 1, or 64 ranges
// of slots on a Redis Cluster.
func (r *Redis) Shards() int {
	if r.clustered() {
		return 16384 / slotsPerShard
	}
	return 1
}

// Shard is the part of the store that counts a check, from 0 to Shards()-1.
func (r *Redis) Shard(c Check) int {
	if !r.clustered() {
		return 0
	}
	var room [128]byte
	tag := appendPart(room[:0], c.Key)
	return int(crc16(tag)%16384) / slotsPerShard
}

// Names says for people which parts of the store these shards are, given in
// ascending order: the server's address, or ranges of slots such as "slots
// 0-5375".
func (r *Redis) Names(shards ...int) []string {
	var names []string
	for i := 0; i < len(shards); {
		first, last := shards[i], shards[i]
		for i++; i < len(shards) && shards[i] == last+1; i++ {
			last++
		}
		name := "redis"
		if r.clustered() {
			name = fmt.Sprintf("slots %d-%d", first*slotsPerShard, (last+1)*slotsPerShard-1)
		} else if client, ok := r.Client.(*redis.Client); ok {
			name = client.Options().Addr
		}
		names = append(names, name)
	}
	return names
}

// probe is a limit that a probe does not exhaust.
var probe = Limit{Rate: 1_000_000, Period: time.Second, Algorithm: FixedWindow}

// Probe has a part of the store decide and charge a check of its own, inside
// the budget. Its error says that decisions would fail there. (Only a charge
// tells: a replica, or a server without memory left, still answers what it does
// not have to write.) Its keys are those of the rule "~probe"; they are gone
// after a second.
func (r *Redis) Probe(ctx context.Context, shard int) error {
	if shard < 0 || shard >= r.Shards() {
		return fmt.Errorf("algorithms: redis: probe: no shard %d", shard)
	}
	c := Check{Rule: "~probe", Limit: probe} // no name that a rule of the middleware can have
	if r.clustered() {
		c.Key = probeKeys()[shard]
	}
	d, err := r.Take(ctx, c)
	if err == nil {
		err = d.Results[0].Err
	}
	return err
}

func (r *Redis) clustered() bool {
	// How a Ring, or a client that wraps one, spreads keys is its own secret.
	_, ok := r.Client.(*redis.ClusterClient)
	return ok
}

// probeKeys returns a key for each shard of a cluster.
var probeKeys = sync.OnceValue(func() (keys [16384 / slotsPerShard]string) {
	for n, missing := 0, len(keys); missing > 0; n++ {
		key := fmt.Sprintf("probe-%d", n)
		if shard := crc16([]byte(key)) % 16384 / slotsPerShard; keys[shard] == "" {
			keys[shard] = key
			missing--
		}
	}
	return keys
})

// crc16 is what Redis Cluster hashes keys with: CRC-16/XMODEM.
func crc16(b []byte) uint16 {
	var crc uint16
	for _, c := range b {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^c]
	}
	return crc
}

var crcTable = func() (table [256]uint16) {
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			if crc <<= 1; carry {
				crc ^= 0x1021
			}
		}
		table[i] = crc
	}
	return table
}()
