package algorithms

import (
	"context"
	"fmt"
	"sync"

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

// Probe runs the script that decides on a part of the store, inside the budget
// and charging nothing. Its error says that decisions would fail there.
func (r *Redis) Probe(ctx context.Context, shard int) error {
	if shard < 0 || shard >= r.Shards() {
		return fmt.Errorf("algorithms: redis: probe: no shard %d", shard)
	}
	c := Check{Rule: "probe", Limit: PerSecond(1)}
	if r.clustered() {
		c.Key = probeKeys()[shard]
	}
	d, err := r.Peek(ctx, c)
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
		crc ^= uint16(c) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}
