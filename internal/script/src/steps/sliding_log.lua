-- sliding_log: twin of slidingLog.At and .Take in internal/step/sliding_log.go.
-- Key      a list of pairs, oldest first: a time at which units came, and the sum of all units up to
--          then. Times rise. The first pair has left already; it is there for its sum.
-- State    used leaves last    the units that count, when those came whose leaving makes room, and
--          when the last came
-- ARGV[p]  rate period cost
-- Also     front before: the pair that left last, and the sum up to it

-- The first pair after one that is not above a bound whose time (0) or sum (1) is above it, the number
-- of pairs if none is; and that number. Looks near that pair first.
local function log_above(key, pair, what, bound)
  local pairs, step = floor(call('LLEN', key) / 2), 1
  local above = pairs
  while pair + step < pairs do
    if call('LINDEX', key, format('%d', 2 * (pair + step) + what)) + 0 > bound then
      above = pair + step
      break
    end
    pair, step = pair + step, 2 * step
  end
  while above - pair > 1 do
    local middle = floor((pair + above) / 2)
    if call('LINDEX', key, format('%d', 2 * middle + what)) + 0 > bound then
      above = middle
    else
      pair = middle
    end
  end
  return above, pairs
end
--@ step
local rate, period, cost = ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2] + 0
local head, tail = call('LRANGE', key, '0', '3'), call('LRANGE', key, '-2', '-1')
local used, leaves, last = 0, 0, 0
front, before = 0, 0
if tail[1] then
  local first, sum = tonumber(head[3]), tonumber(tail[2])
  last, before = tonumber(tail[1]), tonumber(head[2])
  if not (first and sum and last and before and head[4]) or sum < before then
    error('no state of a limit at key ' .. key, 0)
  end
  if last > now + period then
    last, healed = now, true -- all of it came now
  elseif first <= now - period then
    front = log_above(key, 1, 0, now - period) - 1
    before = call('LINDEX', key, format('%d', 2 * front + 1)) + 0
  end
  used = sum - before
end
if used == 0 then
  last = 0
end

local over = used + cost - rate
if over > 0 and over <= used then
  if healed then
    leaves = now
  elseif front == 0 and over <= head[4] - before then -- the usual denial
    leaves = head[3] + 0
  else
    leaves = call('LINDEX', key, format('%d', 2 * log_above(key, front, 1, before + over - 1))) + 0
  end
end

local function write(total, _, at)
  if healed or used == 0 then
    call('DEL', key)
    call('RPUSH', key, '0', '0', format('%d', at), format('%d', total))
  else
    if front > 0 then
      call('LTRIM', key, format('%d', 2 * front), '-1')
    end
    if at == last then
      call('LSET', key, '-1', format('%d', before + total))
    else
      call('RPUSH', key, format('%d', at), format('%d', before + total))
    end
  end
  call('PEXPIRE', key, format('%d', floor((math.max(at + period - now, 0) + 1999) / 1000)))
end
fits, left = over <= 0, false
charge = function()
  write(used + cost, 0, math.max(now, last))
end
form, a, b, c = write, used, leaves, last
was = format('%d %d %d', used, leaves, last)
--@ correct
-- correct: twin of slidingLog.correct in internal/step/sliding_log.go.
-- ARGV[q]  delta at most: how many units more, when the charge came, and how many units a log can hold
local function correct_sliding_log(key, now, p, q, form, used, leaves, last, front, before)
  local period, delta, at = ARGV[p + 1] + 0, ARGV[q] + 0, ARGV[q + 1] + 0
  if delta > 0 then
    local units = max(min(delta, ARGV[q + 2] - used), 0)
    return false, form, used + units, leaves, units > 0 and max(now, last) or last
  end
  if used == 0 or at <= now - period or at > last then
    return false, form, used, leaves, last
  end
  local pair, pairs = log_above(key, front, 0, at - 1)
  if pairs - pair > 1000 then -- as many as can be written anew in a millisecond
    return false, form, used, leaves, last
  end
  local rest = call('LRANGE', key, format('%d', 2 * pair), '-1')
  if rest[1] + 0 ~= at then
    return false, form, used, leaves, last
  end
  local previous = { at, before } -- the pair before the charge's
  if pair - 1 > front then
    previous = call('LRANGE', key, format('%d', 2 * pair - 2), format('%d', 2 * pair - 1))
  end
  local units = rest[2] - previous[2]
  local back, first = min(-delta, units), 1
  if back == units then -- nothing is left of it
    first = 3
    if at == last then
      last = pair - 1 > front and previous[1] + 0 or 0
    end
  end
  for j = 2, #rest, 2 do
    rest[j] = format('%d', rest[j] - back)
  end
  local function write()
    if used == back then
      call('DEL', key)
      return
    end
    call('LTRIM', key, format('%d', 2 * front), format('%d', 2 * pair - 1))
    for j = first, #rest, 1000 do
      call('RPUSH', key, unpack(rest, j, min(j + 999, #rest)))
    end
    call('PEXPIRE', key, format('%d', remember(last + period - now)))
  end
  return false, write, used - back, leaves, last
end
