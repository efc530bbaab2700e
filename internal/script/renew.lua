-- Renews the leases of requests under way. It adds those that are not there: who runs is counted, whatever
-- Redis has forgotten.
-- KEYS     the set of each count
-- ARGV     for each count the lease in µs, how many requests follow, and their ids
-- Returns  how many requests were renewed; or why some were not, other than for a foreign value
-- Sent by  store.Renew in algorithms/in_flight.go

-- Numbers go to redis.call as text: Lua's own conversion keeps 14 digits, and is slow. x + 0 is
-- tonumber(x) at half the cost.
local call, format, find, sub, floor = redis.call, string.format, string.find, string.sub, math.floor

-- The clock is read once for all that a script does.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

local at, renewed, refused = 1, 0, nil
local former, lease, ms, ends -- mostly all have one lease
for i = 1, #KEYS do
  local key, n = KEYS[i], ARGV[at + 1] + 0
  if ARGV[at] ~= former then
    former, lease = ARGV[at], ARGV[at] + 0
    ms, ends = format('%d', floor(lease / 1000) + 1), format('%d', now + lease)
  end
  local members = {}
  for j = 1, n do
    members[2 * j - 1], members[2 * j] = ends, ARGV[at + 1 + j]
  end
  local added = redis.pcall('ZADD', key, unpack(members))
  if type(added) == 'table' then
    if not find(added.err, 'WRONGTYPE', 1, true) then -- no memory, or a replica: to be tried again
      refused = added
    end
  else
    if call('ZCOUNT', key, '(' .. ends, '+inf') > 0 then -- of a clock that was ahead
      for _, ahead in ipairs(call('ZRANGEBYSCORE', key, '(' .. ends, '+inf', 'LIMIT', '0', '100')) do
        call('ZADD', key, ends, ahead)
      end
    end
    call('PEXPIRE', key, ms)
    renewed = renewed + n
  end
  at = at + 2 + n
end
return refused or { renewed }
