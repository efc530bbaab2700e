-- in_flight: twin of inFlight.Take in internal/step/in_flight.go.
-- Key      a sorted set: a member for each request under way, by the end of its lease in µs
-- ARGV[p]  rate lease id
--          the id is a random number below 2^52, of this request alone
-- Members beyond now + lease were written by a clock that was ahead. They are looked for where there is no room.
--@ step
local used = call('ZCOUNT', key, format('(%d', now), '+inf')
local lease, id = ARGV[p + 1], ARGV[p + 2]
fits, left, was, a, b, c = used < ARGV[p] + 0, false, used > 0 and format('%d 0', used) or '', used, 0, 0
charge = function()
  if id % 16 < 1 then -- what has lapsed does not count, and only takes room
    call('ZREMRANGEBYSCORE', key, '-inf', format('%d', now))
  end
  call('ZADD', key, format('%d', now + lease), id)
  call('PEXPIRE', key, format('%d', floor(lease / 1000) + 1))
end
healed = not fits and call('ZCOUNT', key, format('(%d', now + lease), '+inf') > 0 and not call('ZSCORE', key, id)
form = function() -- takes the request out; one that was denied is not in it
  call('ZREM', key, id)
  if healed then
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
  local ends = ARGV[q] + 0 < 0 and call('ZSCORE', key, ARGV[p + 2])
  return false, form, ends and ends + 0 > now and max(a - 1, 0) or a, b, c
end
