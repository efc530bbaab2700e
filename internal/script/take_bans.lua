-- Decides all checks of a request, some with a ban, as take.lua does without. A ban that has not ended
-- denies the request. Of the other checks with a ban, those that have no room count a denial, one for each
-- ban.
-- KEYS     one for each check; then two for each ban: its own, and that of a count that it may keep
-- ARGV     as of take.lua; then for each ban six numbers: of which check it is; after within length, as
--          of a ban below, where after is -1 for a shadow check, and -2 for a check without a ban, which
--          obeys bans by hand only; and how far ahead of now TAT may be, in
--          two parts, if the check has room but for MaxDelay, -1 if no denial is for that; and behind all
--          1 if a check has met the word "ban" or a foreign value, so that all checks have a ban here,
--          else 0; and how many bans there are
-- Returns  what take.lua returns, where a check that is banned may have room, and ? in place of a state
--          leaves its check undecided, for a foreign value; then a line "bans": for each when it ends,
--          negative if it begins with this denial, 0 if there is none
-- Sent by  takeBansCall in algorithms/call.go, if a check has a ban or take.lua has met a ban by hand or a
--          foreign value

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

local mode, bans = ARGV[1], ARGV[#ARGV] + 0
local met, checks, args = ARGV[#ARGV - 1] == '1', #KEYS - 2 * bans, #ARGV - 6 * bans - 1
local keys, obeyed, banned, known, kept, foreign, found, told = {}, {}, {}, {}, {}, {}, {}, {}

-- Leaves out the check that counts at a key, if an error is about a foreign value. As long as met is 0,
-- such a value may be the word "ban", so the request is sent again.
local function leave_out(key, err)
  local text = type(err) == 'table' and err.err or err
  if not met or not (find(text, 'no state of a limit', 1, true) or find(text, 'WRONGTYPE', 1, true) or find(text, 'perform arithmetic', 1, true)) then
    error(err, 0)
  end
  foreign[key] = true
end

for j = 1, bans do
  local key, elsewhere, p = KEYS[checks + 2 * j - 1], KEYS[checks + 2 * j], args + 6 * j - 6
  local of, after = ARGV[p] + 0, ARGV[p + 1]
  local obeys = after ~= '-1' and (after ~= '-2' or held(KEYS[of]))
  local fine, since, ends, count, healed = pcall(ban_at, key, now, p + 1)
  if not fine then
    if obeys then
      leave_out(KEYS[of], since)
    end
    since, ends, count, healed = 0, 0, 0, false
  end
  keys[j], known[key] = key, { since, ends, count, healed }
  obeyed[j], banned[j] = obeys, obeys and ends > now
  if fine and (met or ends > 0) and held(KEYS[of]) then
    if ends <= now and mode ~= '0' then
      release(KEYS[of], elsewhere)
    else
      kept[#kept + 1] = { KEYS[of], elsewhere }
      KEYS[of] = elsewhere
    end
  end
end
for i = #KEYS, checks + 1, -1 do
  KEYS[i] = nil
end
for j = 1, bans do
  if banned[j] and mode == '1' then
    ARGV[1] = '2' -- denies
  end
end

-- This stands behind the pcalls above: at an error that pcall catches, miniredis' Lua takes from functions
-- that are there already what they share, as the place in ARGV.
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

-- What the step at a key says, or where it failed or is left out, that the check has room and is not charged.
local function read(key, fine, fits, left, charge, was, healed, form, a, b, c)
  if not fine then
    leave_out(key, fits)
  end
  if foreign[key] then
    fits, left, charge, was, healed, a, c = true, false, false, '?', false, 0, 0
  end
  found[key] = { fits, a, c }
  return fits, left, charge, was, healed, form, a, b, c
end

local bare = step
step = function(key, code, p)
  if met then
    return read(key, pcall(bare, key, code, p))
  end
  return read(key, true, bare(key, code, p))
end

local function take()
  local KEYS, ARGV = KEYS, ARGV
  local admit, take = ARGV[1] ~= '2', ARGV[1] ~= '0'
  local reply = { time[1] .. ' ' .. time[2], '', '', '' }
  local charges, lefts, heals = ARGV, nil, nil -- ARGV has a place for each check that has been read
  local codes, checks, d, r = ARGV, #KEYS, 0, 1

  -- Decides the checks of a request: their keys are behind place d of KEYS, and its lines begin at place r of
  -- the reply.
  for i = 1, checks do
    local key, code, p = KEYS[d + i], codes[at], at + 1
    local fits, left, charge, was, healed, form, a, b, c, front, before = step(key, code, p)
    if healed then
      heals = heals or {}
      heals[i] = left and format(form, a, b, c) or function() form(a, b, c) end
    end
    if left ~= true or #charge ~= #was then
      lefts = lefts or {}
      lefts[i] = left
    end
    if not fits then
      admit = admit and code + 0 < 0
      reply[r] = reply[r] .. format(' %d', i)
    end
    charges[i], reply[r + i] = fits and charge, was
  end

  if take then
    for i = 1, checks do
      local key, write, left = KEYS[i], admit and charges[i] or heals and heals[i], lefts and lefts[i]
      if write then
        if left == nil and #write > 17 then -- no number, of which SETRANGE would make a string
          call('SETRANGE', key, '0', write)
        elseif left == nil or left == true then
          call('SET', key, write, 'KEEPTTL')
        elseif left and left < 0 then
          if write % 16 < 1 then -- what has lapsed does not count, and only takes room
            call('ZREMRANGEBYSCORE', key, '-inf', format('%d', now))
          end
          call('ZADD', key, format('%d', now - left), write)
          call('PEXPIRE', key, format('%d', floor(-left / 1000) + 1))
        elseif left then
          call('PSETEX', key, format('%d', floor((left + 1999) / 1000)), write)
        else
          write()
        end
      end
    end
  end
  return table.concat(reply, '\n', 1, checks + 1)
end

local reply = { take() .. '\nbans' }
if mode ~= '0' then
  for _, k in ipairs(kept) do
    hold(k[1], k[2], 1) -- a shadow check is charged there
  end
end
for j = 1, bans do
  local p = args + 6 * j - 6
  local q, spare = p + 1, ARGV[p + 4] + 0
  local fits, w, f = unpack(found[KEYS[ARGV[p] + 0]])
  local since, expires, count, healed = unpack(known[keys[j]])
  local begins = false
  local early = w < now + spare or w == now + spare and f <= ARGV[p + 5] + 0
  if mode ~= '0' then
    local counts = not fits and not told[keys[j]] and expires <= now and ARGV[q] + 0 > 0 and not (spare >= 0 and early)
    if counts then
      since, expires, count = ban_deny(now, q, since, expires, count)
      begins, told[keys[j]] = expires > now, true
    end
    if counts or healed and obeyed[j] then
      ban_write(keys[j], now, q, since, expires, count)
      known[keys[j]] = { since, expires, count, false }
    end
  end
  local denies = obeyed[j] and (banned[j] or not fits) and expires > now
  reply[j + 1] = format('%d', denies and (begins and -expires or expires) or 0)
end
return table.concat(reply, ' ')
