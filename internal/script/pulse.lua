-- Puts off the end of leases: of requests under way, and of the instances that use a namespace. It adds those that
-- are not there: who runs is counted, whatever Redis has forgotten.
-- KEYS     sets as of in_flight in common.lua
-- ARGV     for each set the lease in µs, how many members follow, and these
-- Returns  how many are in each set, -1 where the key has a foreign value; or why some were not renewed
-- Sent by  store.Renew in algorithms/redis_in_flight.go and store.Beat in redis_store.go
local counts, refused = {}, nil
for i = 1, #KEYS do
  local key, lease, n = KEYS[i], ARGV[at] + 0, ARGV[at + 1] + 0
  local ends, members = format('%d', now + lease), {}
  for j = 1, n do
    members[2 * j - 1], members[2 * j] = ends, ARGV[at + 1 + j]
  end
  at = at + 2 + n
  local added = redis.pcall('ZADD', key, unpack(members))
  if type(added) == 'number' then
    if call('ZCOUNT', key, '(' .. ends, '+inf') > 0 then -- of a clock that was ahead
      for _, ahead in ipairs(call('ZRANGEBYSCORE', key, '(' .. ends, '+inf', 'LIMIT', '0', '100')) do
        call('ZADD', key, ends, ahead)
      end
    end
    call('ZREMRANGEBYSCORE', key, '-inf', format('%d', now))
    call('PEXPIRE', key, format('%d', floor(lease / 1000) + 1))
    counts[i] = call('ZCARD', key)
  elseif find(added.err, 'WRONGTYPE', 1, true) then
    counts[i] = -1
  else -- no memory, or a replica: to be tried again
    refused = added
  end
end
return refused or counts
