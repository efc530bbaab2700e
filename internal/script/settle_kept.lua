-- Corrects a charge as settle.lua does, which is settle(), also if the count is kept elsewhere during a
-- ban by hand.
-- KEYS     the key, and where its count is kept
-- ARGV     as of settle.lua
-- Returns  what settle.lua returns
-- Sent by  settleKeptCall in algorithms/call.go, if settle.lua has met a ban by hand or a foreign value

-- Numbers go to redis.call as text: Lua's own conversion keeps 14 digits, and is slow. x + 0 is
-- tonumber(x) at half the cost.
local call, format, find, sub, floor = redis.call, string.format, string.find, string.sub, math.floor

-- The clock is read once for all that a script does.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- What the scripts share that call functions; take.lua has none.
local max, min = math.max, math.min

-- The ms for which to remember what counts for some µs more.
local function remember(us)
  return floor((max(us, 0) + 1999) / 1000)
end

-- The place in ARGV of what is read next.
local at = 2

-- A step reads a key and writes nothing. It knows now in µs, the key, and the place p of its arguments in
-- ARGV. It reads at most 64 bytes of a key: a state that is not ours is known by its length. What of a text
-- has not changed is written as it was read. It says
--   fits       has the check room?
--   left       for how many µs more to remember the state; true keeps the key's deadline; false if the
--              functions below set it; negative if what charges is a member of a set, for so many µs
--   charge     what to write to charge the check: a text, or a function without arguments
--   was        the state as the reply of take.lua has it: as it is stored
--   healed     was the state written by a clock that was more than a period ahead?
--   form       how to write a state: for string.format, or a function of its three numbers
--   a b c      the state as it stands now
--   front before   what its correction needs besides

-- fixed_window: twin of fixedWindow.At and .Take in internal/step/fixed_window.go.
-- Key      "start used": the window's start in µs, the units taken in it. Where the start is a whole second of
--          this century and the units are less than a million, their sum: Redis keeps that as a number, in
--          less than a string. It has no leading zeros, which miniredis' Lua reads as octal.
-- ARGV[p]  rate period cost

-- sliding_window: twin of slidingWindow.At and .Take in internal/step/sliding_window.go.
-- Key      "start used last": the window's start in µs, the units taken in it and in the one before. Where the
--          start is such a second and both are less than a thousand, -(start + used * 1000 + last): a number,
--          as of fixed_window, and told from that by its sign.
-- ARGV[p]  rate period cost

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

-- bucket: twin of bucket.At and .Take in internal/step/bucket.go.
-- Key      "w ahead f": TAT is w + f/rate µs, and was that many ms ahead of the clock when it was written
-- ARGV[p]  rate costW costF roomW roomF period
--          the time that the cost takes to refill, and how far ahead TAT may be then, in two parts like TAT
-- A key's deadline is the end of its TAT's part of a grid, so that it stays for a while.

-- queue: twin of queue.Take in internal/step/queue.go. Its key, its arguments and its step are the bucket's.

-- in_flight: twin of inFlight.Take in internal/step/in_flight.go.
-- Key      a sorted set: a member for each request under way, by the end of its lease in µs
-- ARGV[p]  rate lease id
--          the id is a random number below 2^52, of this request alone
-- Members beyond now + lease were written by a clock that was ahead. They are looked for where there is no room.

-- calendar_window: twin of calendarWindow.At and .Take in internal/step/calendar_window.go.
-- Key      as of fixed_window, but that the start is the window's date: midnight of its first day as if in UTC
-- ARGV[p]  rate cost; then of the windows before, at and after the time that the caller expects, and of the
--          next one, when it begins and its date. If the clock is in none of the first three, that is an error

-- The step of a code, as a function. It moves at behind the arguments.
local function step(key, code, p)
  local fits, left, charge, was, healed, form, a, b, c, front, before
  if code == '1' or code == '-1' then
    at = p + 3
    local rate, period, cost = ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2] + 0
    local begin = now - now % period
    local ends, late = begin + period, now + period
    local stored, start, used = -1, begin, 0
    was = call('GETRANGE', key, '0', '63')
    if was ~= '' then
      if #was == 16 then
        used = was % 1000000
        stored = was - used
        if stored ~= begin and find(was, '%D') then -- a fraction, or hexadecimal
          error('no state of a limit at key ' .. key, 0)
        end
      elseif #was >= 18 and #was <= 32 then
        stored, used = sub(was, 1, 16) + 0, sub(was, 18) + 0
      else
        error('no state of a limit at key ' .. key, 0)
      end
      if stored == begin or used == 0 then
        start = begin
      elseif stored > late then
        healed = true -- all of it counts now
      elseif stored < begin then
        used = 0
      else
        start = stored
      end
    end
    local after = used + cost
    fits, left = after <= rate, start == stored or ends - now
    if after < 1000000 and start % 1000000 == 0 and start >= 1000000000000000 then
      charge = format('%d', start + after)
    else
      charge = format('%016d %d', start, after)
    end
    form, a, b, c = '%016d %d', start, used, 0
  elseif code == '2' or code == '-2' then
    at = p + 3
    local rate, period, cost = ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2] + 0
    local begin = now - now % period
    local stored, start, used, last, head, tail = -1, begin, 0, 0, '', ''
    was = call('GETRANGE', key, '0', '63')
    if was ~= '' then
      local space = #was >= 20 and #was <= 34 and find(was, ' ', 19, true)
      if space then
        head, used, tail = sub(was, 1, 17), sub(was, 18, space - 1) + 0, sub(was, space)
        stored, last = head + 0, tail + 0
      elseif #was == 17 then
        stored = 0 - was
        used, last = stored % 1000000, stored % 1000
        stored, used = stored - used, (used - last) / 1000
        if stored ~= begin and not find(was, '^%-%d+$') then
          error('no state of a limit at key ' .. key, 0)
        end
      else
        error('no state of a limit at key ' .. key, 0)
      end
      if stored == begin or used == 0 and last == 0 then
        start = begin
      elseif stored > now + period then
        healed = true -- all of it counts now
      elseif stored == begin - period then
        last = used -- first: miniredis' Lua gets "used, last = 0, used" wrong
        used = 0
      elseif stored < begin then
        used, last = 0, 0
      else
        start = stored
      end
    end
    local room, view = rate - used - cost, start + period - now
    fits = room >= 0
    if fits and last > room then
      local rest = period % last
      fits = view <= room * ((period - rest) / last) + floor(room * rest / last)
    end
    local after = used + cost
    left = start == stored or view + period
    if after < 1000 and last < 1000 and start % 1000000 == 0 and start >= 1000000000000000 then
      charge = format('%d', -start - after * 1000 - last)
    elseif left == true and tail ~= '' then
      charge = head .. format('%d', after) .. tail
    else
      charge = format('%016d %d %d', start, after, last)
    end
    form, a, b, c = '%016d %d %d', start, used, last
  elseif code == '3' or code == '-3' then
    at = p + 3
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
  elseif code == '4' or code == '-4' or code == '5' or code == '-5' then
    at = p + 6
    local rate, period = ARGV[p] + 0, ARGV[p + 5] + 0
    local stored, w, ahead, f = -1, now, 0, 0
    was = call('GETRANGE', key, '0', '63')
    if was ~= '' then
      local space = #was >= 20 and #was <= 46 and find(was, ' ', 19, true)
      if not space then
        error('no state of a limit at key ' .. key, 0)
      end
      stored, ahead, f = sub(was, 1, 16) + 0, sub(was, 18, space - 1) + 0, sub(was, space + 1) + 0
      w = stored
      local wrote = w - w % 1000 - ahead * 1000 -- when
      if wrote > now + period then
        w = now + (w - wrote) -- now + w may be above 2^53
        stored, ahead, healed = -1, floor(w / 1000) - floor(now / 1000), true
      elseif w < now then
        w, ahead, f = now, 0, 0
      end
      if f >= rate then
        f = rate - 1
      end
    end
    local w2, f2 = w + ARGV[p + 1], f + ARGV[p + 2]
    if f2 >= rate then
      w2, f2 = w2 + 1, f2 - rate
    end
    local room_w = now + ARGV[p + 3]
    fits = w2 < room_w or w2 == room_w and f2 <= ARGV[p + 4] + 0
    local grid = period > 60000000 and 60000000 or period > 1000000 and period or 1000000
    local part = w2 - w2 % grid
    left = stored - stored % grid == part or part + grid + 1000 - now
    charge = format('%016d %d %d', w2, floor(w2 / 1000) - floor(now / 1000), f2)
    form, a, b, c = '%016d %d %d', w, ahead, f
  elseif code == '6' or code == '-6' then
    at = p + 3
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
  elseif code == '7' or code == '-7' then
    at = p + 10
    local rate, cost = ARGV[p] + 0, ARGV[p + 1] + 0
    local at_window = p + 4
    if now < ARGV[p + 4] + 0 then
      at_window = p + 2
    elseif now >= ARGV[p + 6] + 0 then
      at_window = p + 6
    end
    local begin, ends, late = ARGV[at_window + 1] + 0, ARGV[at_window + 2] + 0, ARGV[at_window + 3] + 0
    if now < ARGV[at_window] + 0 or now >= ends then
      error('none of the calendar windows holds ' .. format('%d', now), 0)
    end
    local stored, start, used = -1, begin, 0
    was = call('GETRANGE', key, '0', '63')
    if was ~= '' then
      if #was == 16 then
        used = was % 1000000
        stored = was - used
        if stored ~= begin and find(was, '%D') then -- a fraction, or hexadecimal
          error('no state of a limit at key ' .. key, 0)
        end
      elseif #was >= 18 and #was <= 32 then
        stored, used = sub(was, 1, 16) + 0, sub(was, 18) + 0
      else
        error('no state of a limit at key ' .. key, 0)
      end
      if stored == begin or used == 0 then
        start = begin
      elseif stored > late then
        healed = true -- all of it counts now
      elseif stored < begin then
        used = 0
      else
        start = stored
      end
    end
    local after = used + cost
    fits, left = after <= rate, start == stored or ends - now
    if after < 1000000 and start % 1000000 == 0 and start >= 1000000000000000 then
      charge = format('%d', start + after)
    else
      charge = format('%016d %d', start, after)
    end
    form, a, b, c = '%016d %d', start, used, 0
  end
  return fits, left, charge, was, healed, form, a, b, c, front, before
end

-- A correction is a function of a key, of now, of the places p and q of the step's arguments and of its
-- own, and of what the step has said: form, the state, and what comes after it. It returns left (µs, or
-- true: the key is kept until it would have been), form and the corrected state.
-- correct: twin of correction.inWindows in internal/step/fixed_window.go.
-- ARGV[q]  delta begin most: how many units more, the start of the window that was charged, and how many
--          units a window can hold
local function correct_windows(p, q, start, used, last)
  local period, delta, begin = ARGV[p + 1] + 0, ARGV[q] + 0, ARGV[q + 1] + 0
  if delta > 0 then
    used = used + min(delta, ARGV[q + 2] - used)
  elseif start == begin then
    used = max(used + delta, 0)
  elseif start == begin + period then
    last = max(last + delta, 0)
  end
  return start, used, last
end

local function correct_fixed_window(_, now, p, q, form, start, used)
  return start + ARGV[p + 1] - now, form, correct_windows(p, q, start, used, 0)
end

-- correct: as of fixed_window.
local function correct_sliding_window(_, now, p, q, form, start, used, last)
  return start + 2 * ARGV[p + 1] - now, form, correct_windows(p, q, start, used, last)
end

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

-- correct: twin of bucket.correct in internal/step/bucket.go.
-- ARGV[q]  delta chargedAt frac deltaW deltaF chargeW chargeF
--          how many units more; when the charge was made, or its slot begins, and by which fraction;
--          the time that delta's units and the charge's take to refill
local function earlier(w, f, dw, df, rate, now)
  w, f = w - dw, f - df
  if f < 0 then
    w, f = w - 1, f + rate
  end
  if w < now then
    w, f = now, 0
  end
  return w, f
end

local function corrected(now, p, form, w, ahead, f, w2, f2)
  local grid = max(1000000, min(ARGV[p + 5] + 0, 60000000))
  if w2 ~= w or f2 ~= f then
    ahead = floor(w2 / 1000) - floor(now / 1000)
  end
  return w2 - w2 % grid + grid + 1000 - now, form, w2, ahead, f2
end

local function correct_bucket(_, now, p, q, form, w, ahead, f)
  local rate, dw, df = ARGV[p] + 0, ARGV[q + 3] + 0, ARGV[q + 4] + 0
  local w2, f2 = w, f
  if ARGV[q] + 0 > 0 then
    w2, f2 = w + dw, f + df
    if f2 >= rate then
      w2, f2 = w2 + 1, f2 - rate
    end
    if w2 >= 4503599627370496 then -- as far as the exact range goes
      w2, f2 = 4503599627370496, 0
      if w >= w2 then
        w2, f2 = w, f
      end
    end
  else
    local cw, cf = ARGV[q + 5] - max(now - ARGV[q + 1], 0), ARGV[q + 6] + 0
    if cw < dw or cw == dw and cf < df then
      dw, df = cw, cf
    end
    if dw >= 0 and ARGV[q + 1] + 0 <= now + ARGV[p + 5] then
      w2, f2 = earlier(w, f, dw, df, rate, now)
    end
  end
  return corrected(now, p, form, w, ahead, f, w2, f2)
end

-- correct: twin of queue.correct in internal/step/queue.go.
-- ARGV[q]  as of the bucket
local function correct_queue(key, now, p, q, form, w, ahead, f)
  local rate = ARGV[p] + 0
  if ARGV[q] + 0 > 0 then
    return correct_bucket(key, now, p, q, form, w, ahead, f)
  end
  local begin_w, begin_f = earlier(w, f, ARGV[q + 5], ARGV[q + 6], rate, 0)
  if begin_f > 0 then
    begin_w = begin_w + 1
  end
  local w2, f2 = w, f
  if begin_w == ARGV[q + 1] + 0 and begin_f == ARGV[q + 2] + 0 then
    w2, f2 = earlier(w, f, ARGV[q + 3], ARGV[q + 4], rate, now)
  end
  return corrected(now, p, form, w, ahead, f, w2, f2)
end

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

local function correct_calendar_window(_, now, p, q, form, start, used)
  local left = true -- of a window that is not told
  for window = p + 2, p + 6, 2 do
    if ARGV[window + 1] + 0 == start then
      left = ARGV[window + 2] - now
    end
  end
  local delta = ARGV[q] + 0
  if delta > 0 then
    used = used + min(delta, ARGV[q + 2] - used)
  elseif start == ARGV[q + 1] + 0 then
    used = max(used + delta, 0)
  end
  return left, form, start, used, 0
end

local corrections = {
  ['1'] = correct_fixed_window,
  ['2'] = correct_sliding_window,
  ['3'] = correct_sliding_log,
  ['4'] = correct_bucket,
  ['5'] = correct_queue,
  ['6'] = correct_in_flight,
  ['7'] = correct_calendar_window,
}

-- ban: twin of Ban in internal/step/denials.go.
-- Key      "since until count": when the first of the denials came, or the ban began; when the denials are
--          forgotten, or the ban ends; the denials, 0 during a ban
-- ARGV[q]  after within length
--          how many denials lead to a ban, 0 if they do not count; in how many µs; and how long it lasts
local function ban_at(key, now, q)
  local was, within = call('GETRANGE', key, '0', '63'), ARGV[q + 1] + 0
  if was == '' then
    return 0, 0, 0, false
  end
  if #was < 35 or #was > 50 then
    error('no state of a limit at key ' .. key, 0)
  end
  local since, expires, count = sub(was, 1, 16) + 0, sub(was, 18, 33) + 0, sub(was, 35) + 0
  if count > 0 then
    if expires <= now then -- the key is there for some ms more
      return 0, 0, 0, false
    end
    expires = 0
  end
  if since > now + within then
    return now, count > 0 and 0 or now + max(expires - since, 0), count, true
  end
  return since, expires, count, false
end

local function ban_deny(now, q, since, expires, count)
  if count == 0 or now - since >= ARGV[q + 1] + 0 then
    since, expires, count = now, 0, 0
  end
  count = count + 1
  if count >= ARGV[q] + 0 then
    since, expires, count = now, now + ARGV[q + 2], 0
  end
  return since, expires, count
end

local function ban_write(key, now, q, since, expires, count)
  if count > 0 then
    expires = max(expires, since + ARGV[q + 1])
  end
  local ms = remember(expires - now)
  call('PSETEX', key, format('%d', ms), format('%016d %016d %d', since, expires, count))
  return ms
end

-- A check without a Ban does not read this key. So a ban by hand puts the word "ban" in the place of
-- the count, which no step takes for a state, and keeps the count at another key until it has ended.
-- Is it there?
local function held(key)
  return redis.pcall('GETRANGE', key, '0', '3') == 'ban'
end

local function hold(key, kept, ms)
  if not held(key) then
    call('DEL', kept)
    redis.pcall('RENAME', key, kept) -- an error if there is none
    call('PSETEX', key, format('%d', max(ms, call('PTTL', kept) + 1)), 'ban') -- as long as both
    return
  end
  ms = max(ms, call('PTTL', kept) + 1)
  if ms > call('PTTL', key) then
    call('PEXPIRE', key, format('%d', ms))
  end
end

local function release(key, kept)
  call('DEL', key)
  redis.pcall('RENAME', kept, key)
end

local function settle()
  local reply = { now }

  if #KEYS > 1 then -- of one, the step below reads before it writes
    at = 1
    for i = 1, #KEYS do
      local p = at + 2
      step(KEYS[i], ARGV[p - 1], p)
      at = p - 1 + ARGV[p - 2]
    end
  end
  at = 1
  for i = 1, #KEYS do
    local key, code, p = KEYS[i], ARGV[at + 1], at + 2
    local _, left, _, _, healed, form, a, b, c, front, before = step(key, code, p)
    local q = at
    local a2, b2, c2 = a, b, c
    if not healed or ARGV[q] + 0 > 0 then
      left, form, a2, b2, c2 = corrections[code](key, now, p, q, form, a, b, c, front, before)
    end
    if not healed and a2 == a and b2 == b and c2 == c then
      -- nothing to write
    elseif left == true then
      call('SET', key, format(form, a2, b2, c2), 'KEEPTTL')
    elseif left then
      call('PSETEX', key, format('%d', remember(left)), format(form, a2, b2, c2))
    else
      form(a2, b2, c2)
    end
    reply[3 * i - 1], reply[3 * i], reply[3 * i + 1] = a2, b2, c2
    at = p - 1 + ARGV[p - 2]
  end
  return reply
end

local key, elsewhere = KEYS[1], KEYS[2]
local kept = held(key)
if kept then
  KEYS[1] = elsewhere
end
KEYS[2] = nil
local reply = settle()
if kept then
  hold(key, elsewhere, 1)
end
return reply
