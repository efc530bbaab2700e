-- Counts the instances that use a namespace: each is in a sorted set by the end of its lease.
-- KEYS[1]  the set
-- ARGV     the id of this instance; for how many ms it counts from now on, 0 to leave
-- Returns  how many instances count
-- Sent by  store.Beat in algorithms/redis_instances.go
local format = string.format
local set, id, lease = KEYS[1], ARGV[1], tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if lease == 0 then
  redis.call('ZREM', set, id)
else
  redis.call('ZADD', set, format('%d', now + lease), id)
  -- A clock that was ahead must not let an instance count for ever.
  redis.call('ZREMRANGEBYSCORE', set, format('(%d', now + lease), '+inf')
  redis.call('PEXPIRE', set, ARGV[2])
end
redis.call('ZREMRANGEBYSCORE', set, '-inf', format('%d', now))
return {redis.call('ZCARD', set)}
