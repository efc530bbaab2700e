-- in_flight: twin of inFlight.Take in internal/step/in_flight.go.
-- Key      a sorted set: a member for each request under way, by the end of its lease in µs
-- ARGV[p]  rate lease id
--          the id is a random number below 2^52, of this request alone
-- Members beyond now + lease were written by a clock that was ahead. They are looked for where there is no room.
--@ step
local used = call('ZCOUNT', key, format('(%d', now), '+inf')
local lease, id = ARGV[p + 1], ARGV[p + 2]
fits, was, a, b, c = used < ARGV[p] + 0, used > 0 and format('%d 0', used) or '', used, 0, 0
if fits then
  left, charge = -lease, id
else
  left = false
  healed = call('ZCOUNT', key, format('(%d', now + lease), '+inf') > 0 and not call('ZSCORE', key, id)
  form = function()
    for _, ahead in ipairs(call('ZRANGEBYSCORE', key, format('(%d', now + lease), '+inf', 'LIMIT', '0', '100')) do
      call('ZADD', key, format('%d', now + lease), ahead)
    end
    call('PEXPIRE', key, format('%d', floor(lease / 1000) + 1))
  end
end
--@ correct
-- correct: twin of inFlight.correct in internal/step/in_flight.go. Who is not in the set changes nothing.
-- ARGV[q]  delta
local function correct_in_flight(key, now, p, q, form, a, b, c)
  local id = ARGV[p + 2]
  local ends = ARGV[q] + 0 < 0 and call('ZSCORE', key, id)
  local function write()
    call('ZREM', key, id)
  end
  return false, write, ends and ends + 0 > now and max(a - 1, 0) or a, b, c
end
