-- What stands before take.lua, joint.lua, settle.lua and pulse.lua: the clock, and the steps of the algorithms.
--
-- Numbers go to redis.call as text: Lua's own conversion keeps 14 digits, and is slow. x + 0 is
-- tonumber(x) at half the cost. A function costs Redis time in each run, even if it is not called.
local KEYS, ARGV = KEYS, ARGV
local call, format, find, match, sub, floor = redis.call, string.format, string.find, string.match, string.sub, math.floor

-- The clock is read once for all that a script does.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- The place in ARGV of what is read next; and the states that joint.lua has read already, by key.
local at, states = 1, {}

-- What runs of in_flight, or is there. A key has a hash: of each process "epoch granted ended until", of which
-- granted − ended run until its lease ends; and at "all" how many run in all, and the first moment at which a lease
-- may end. Only then are all processes read.
-- told is "process epoch granted ended", or a process alone: of it, nothing is told. In an epoch, numbers only
-- rise, so that it does not matter what comes late or is lost. A later epoch takes the place of an earlier one.
-- Returns how many run; a function that writes what was told, and so many places more that are granted: false if a
-- later epoch is there, which counts the place that is asked for; nil if nothing is told; one that takes back a place that was granted to it, or a process of which nothing is told:
-- false if there is none; and were all read?
local function running(key, lease, told)
  local process, epoch, granted, ended = match(told, '^(%S+) ?(%d*) ?(%d*) ?(%d*)')
  local found = call('HMGET', key, 'all', process)
  local mine, all, due, ends, over = found[2], 0, now + lease, now + lease, {}
  if found[1] then
    all, due = match(found[1], '^(%d+) (%d+)$')
    all, due = all + 0, due + 0
  end
  local anew = due <= now or due > ends -- or a clock was ahead
  if anew then
    all, due = 0, ends
    local fields = call('HGETALL', key)
    for i = 1, #fields, 2 do
      local e, g, r, till = match(fields[i + 1], '^(%d+) (%d+) (%d+) (%d+)$')
      if till and till + 0 <= now then
        over[#over + 1] = { 'HDEL', key, fields[i] }
        mine = fields[i] ~= process and mine
      elseif till then
        all, due = all + g - r, math.min(due, till + 0)
        if till + 0 > ends and fields[i] ~= process then
          over[#over + 1] = { 'HSET', key, fields[i], format('%s %s %s %d', e, g, r, ends) }
        end
      end
    end
  end
  local function save(all, ...)
    for i = 1, #over do
      call(unpack(over[i]))
    end
    call('HSET', key, 'all', format('%d %d', all, due), ...)
    call('PEXPIRE', key, format('%d', floor(lease / 1000) + 1))
  end

  local e, g, r = 0, 0, 0
  if mine then
    e, g, r = match(mine, '^(%d+) (%d+) (%d+)')
    e, g, r = e + 0, g + 0, r + 0
  end
  local drop = g > r and (epoch == '' or epoch + 0 == e) and function()
    if epoch == '' then
      call('HDEL', key, process)
      save(all - g + r)
    else
      save(all - 1, process, format('%d %d %d %d', e, g - 1, r, ends))
    end
  end
  if epoch == '' then
    return all, nil, drop, anew
  end
  epoch, granted, ended = epoch + 0, granted + 0, ended + 0
  if epoch < e then
    return all, false, drop, anew
  elseif epoch == e then
    granted, ended = math.max(granted, g), math.max(ended, r)
  end
  all = all - g + r + granted - ended
  return all, function(more)
    save(all + more, process, format('%d %d %d %d', epoch, granted + more, ended, ends))
  end, drop, anew
end

-- The step of a kind is the twin of At and Take of a step in internal/step. Its arguments are in ARGV from at on;
-- it moves at behind them. It writes nothing. Where the value at the key is no state, it fails. It reads at most
-- 64 bytes of a text, and tells by their length whether they are a state. What of a text has not changed is
-- written as it was read. It returns
--   fits       has the check room?
--   left       for how many µs more to remember the state; true keeps the key's deadline; false if the
--              functions below set it
--   charge     what to write to charge the check: a text, or a function without arguments; false if nothing
--   was        the state as the reply of take.lua has it: as it is stored
--   healed     was the state written by a clock that was more than a period ahead?
--   form       how to write a state: for string.format, or a function of its three numbers
--   a b c      the state as it stands now
--   front before above   what the correction of a log needs besides
local function step(kind, key)
  local p = at
  if kind == 1 or kind == 7 then
    local rate, cost, begin, ends, late
    if kind == 1 then
      -- fixed_window: twin of fixedWindow in fixed_window.go.
      -- Key      "start used": the window's start in µs, the units taken in it. Where the start is a whole second
      --          of this century and the units are less than a million, their sum: Redis keeps that as a number,
      --          in less than a string. It has no leading zeros, which miniredis' Lua reads as octal.
      -- ARGV[p]  rate period cost
      local period = ARGV[p + 1] + 0
      rate, cost, begin, at = ARGV[p] + 0, ARGV[p + 2] + 0, now - now % period, p + 3
      ends, late = begin + period, now + period
    else
      -- calendar_window: twin of calendarWindow in calendar_window.go.
      -- Key      the same, but that the start is the window's date: midnight of its first day as if in UTC
      -- ARGV[p]  rate cost; then of the windows before, at and after the time that the caller expects, and of the
      --          next one, when it begins and its date. If the clock is in none of the first three, that is an error
      local of = p + 4
      if now < ARGV[p + 4] + 0 then
        of = p + 2
      elseif now >= ARGV[p + 6] + 0 then
        of = p + 6
      end
      rate, cost, begin, at = ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[of + 1] + 0, p + 10
      ends, late = ARGV[of + 2] + 0, ARGV[of + 3] + 0
      if now < ARGV[of] + 0 or now >= ends then
        error('none of the calendar windows holds ' .. format('%d', now), 0)
      end
    end
    local stored, start, used, healed = -1, begin, 0, nil
    local was = states[key] or call('GETRANGE', key, '0', '63')
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
    local after, charge = used + cost, nil
    if after < 1000000 and start % 1000000 == 0 and start >= 1000000000000000 then
      charge = format('%d', start + after)
    else
      charge = format('%016d %d', start, after)
    end
    return after <= rate, start == stored or ends - now, charge, was, healed, '%016d %d', start, used, 0

  elseif kind == 2 then
    -- sliding_window: twin of slidingWindow in sliding_window.go.
    -- Key      "start used last": the window's start in µs, the units taken in it and in the one before. Where the
    --          start is such a second and both are less than a thousand, -(start + used * 1000 + last): a number,
    --          as of fixed_window, and told from that by its sign.
    -- ARGV[p]  rate period cost
    local rate, period, cost = ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2] + 0
    at = p + 3
    local begin = now - now % period
    local stored, start, used, last, healed, head, tail = -1, begin, 0, 0, nil, '', ''
    local was = states[key] or call('GETRANGE', key, '0', '63')
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
    local fits = room >= 0
    if fits and last > room then
      local rest = period % last
      fits = view <= room * ((period - rest) / last) + floor(room * rest / last)
    end
    local after, left, charge = used + cost, start == stored or view + period, nil
    if after < 1000 and last < 1000 and start % 1000000 == 0 and start >= 1000000000000000 then
      charge = format('%d', -start - after * 1000 - last)
    elseif left == true and tail ~= '' then
      charge = head .. format('%d', after) .. tail
    else
      charge = format('%016d %d %d', start, after, last)
    end
    return fits, left, charge, was, healed, '%016d %d %d', start, used, last

  elseif kind == 3 then
    -- sliding_log: twin of slidingLog in sliding_log.go.
    -- Key      a list of pairs, oldest first: a time at which units came, and the sum of all units up to
    --          then. Times rise. The first pair has left already; it is there for its sum.
    -- State    used leaves last    the units that count, when those came whose leaving makes room, and
    --          when the last came
    -- ARGV[p]  rate period cost
    -- Also     front before above: the pair that left last, the sum up to it, and the function below
    local rate, period, cost = ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2] + 0
    at = p + 3
    -- The first pair after one that is not above a bound whose time (0) or sum (1) is above it, the number of
    -- pairs if none is; and that number. Looks near that pair first.
    local function above(pair, what, bound)
      local pairs, step = floor(call('LLEN', key) / 2), 1
      local found = pairs
      while pair + step < pairs do
        if call('LINDEX', key, format('%d', 2 * (pair + step) + what)) + 0 > bound then
          found = pair + step
          break
        end
        pair, step = pair + step, 2 * step
      end
      while found - pair > 1 do
        local middle = floor((pair + found) / 2)
        if call('LINDEX', key, format('%d', 2 * middle + what)) + 0 > bound then
          found = middle
        else
          pair = middle
        end
      end
      return found, pairs
    end
    local head, tail = call('LRANGE', key, '0', '3'), call('LRANGE', key, '-2', '-1')
    local used, leaves, last, healed, front, before = 0, 0, 0, nil, 0, 0
    if tail[1] then
      local first, sum = tonumber(head[3]), tonumber(tail[2])
      last, before = tonumber(tail[1]), tonumber(head[2])
      if not (first and sum and last and before and head[4]) or sum < before then
        error('no state of a limit at key ' .. key, 0)
      end
      if last > now + period then
        last, healed = now, true -- all of it came now
      elseif first <= now - period then
        front = above(1, 0, now - period) - 1
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
        leaves = call('LINDEX', key, format('%d', 2 * above(front, 1, before + over - 1))) + 0
      end
    end

    local function write(total, _, came)
      if healed or used == 0 then
        call('DEL', key)
        call('RPUSH', key, '0', '0', format('%d', came), format('%d', total))
      else
        if front > 0 then
          call('LTRIM', key, format('%d', 2 * front), '-1')
        end
        if came == last then
          call('LSET', key, '-1', format('%d', before + total))
        else
          call('RPUSH', key, format('%d', came), format('%d', before + total))
        end
      end
      call('PEXPIRE', key, format('%d', floor((math.max(came + period - now, 0) + 1999) / 1000)))
    end
    local function charge()
      write(used + cost, 0, math.max(now, last))
    end
    local was = format('%d %d %d', used, leaves, last)
    return over <= 0, false, charge, was, healed, write, used, leaves, last, front, before, above

  elseif kind == 4 or kind == 5 then
    -- bucket: twin of bucket in bucket.go; and queue: twin of queue in queue.go, which takes as a bucket does.
    -- Key      "w ahead f": TAT is w + f/rate µs, and was that many ms ahead of the clock when it was written
    -- ARGV[p]  rate costW costF roomW roomF period
    --          the time that the cost takes to refill, and how far ahead TAT may be then, in two parts like TAT
    -- A key's deadline is the end of its TAT's part of a grid, so that it stays for a while.
    local rate, period = ARGV[p] + 0, ARGV[p + 5] + 0
    at = p + 6
    local stored, w, ahead, f, healed = -1, now, 0, 0, nil
    local was = states[key] or call('GETRANGE', key, '0', '63')
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
    local fits = w2 < room_w or w2 == room_w and f2 <= ARGV[p + 4] + 0
    local grid = period > 60000000 and 60000000 or period > 1000000 and period or 1000000
    local part = w2 - w2 % grid
    local left = stored - stored % grid == part or part + grid + 1000 - now
    local charge = (w2 ~= w or f2 ~= f) and format('%016d %d %d', w2, floor(w2 / 1000) - floor(now / 1000), f2)
    return fits, left, charge, was, healed, '%016d %d %d', w, ahead, f
  end

  -- in_flight, kind 6: twin of inFlight in in_flight.go.
  -- Key      see running
  -- ARGV[p]  rate lease told
  -- Also     front: the last function of running
  at = p + 3
  local used, write, drop, anew = running(key, ARGV[p + 1] + 0, ARGV[p + 2])
  if write == false then
    used = math.max(used - 1, 0)
  end
  local was = used > 0 and format('%d 0', used) or ''
  if used < ARGV[p] + 0 then
    return true, false, write and function() write(1) end, was, nil, nil, used, 0, 0, drop
  end
  return false, false, nil, was, anew and write, function() write(0) end, used, 0, 0, drop
end

-- Decides the checks of a request: their keys are behind place d of KEYS. It puts the states into reply, behind
-- place r, whose line gets the checks that have no room; and what to write if all are admitted into charges. It
-- returns whether they are; and, by check, what to write in any case, and what the steps have said about
-- deadlines, if they change or a state gets another length.
local function decide(d, checks, reply, r, charges)
  local admit, heals, lefts = true, nil, nil
  at = 2
  for i = 1, checks do
    local code = ARGV[at] + 0 -- negative for a shadow check
    at = at + 1
    local fits, left, charge, was, healed, form, a, b, c = step(code < 0 and -code or code, KEYS[d + i])
    if healed then
      heals = heals or {}
      heals[i] = left and format(form, a, b, c) or function() form(a, b, c) end
    end
    if left ~= true or charge and #charge ~= #was then
      lefts = lefts or {}
      lefts[i] = left
    end
    if not fits then
      admit = admit and code < 0
      reply[r] = reply[r] .. format(' %d', i)
    end
    charges[i], reply[r + i] = fits and charge, was
  end
  return admit, heals, lefts
end
