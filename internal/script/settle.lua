-- Corrects charges, one after the other: twin of Correction.Settle in internal/step/correction.go. A state
-- that is not ours is an error before anything is written.
-- KEYS     one for each charge
-- ARGV     for each charge how many numbers follow; the code of its step, the step's arguments, and
--          its correction's, the first of which is by how many units the charge is to cost more
-- Returns  now in µs; then for each charge its key's state
-- Sent by  settleCall in algorithms/call.go
local max, min = math.max, math.min

-- The ms for which to remember what counts for some µs more.
local function remember(us)
  return format('%d', floor((max(us, 0) + 1999) / 1000))
end

-- A correction is the twin of correct of a step in internal/step. It knows now, a key, the places p and q of the
-- step's arguments and of its own, and what the step has said: form, the state, and what comes after it. It
-- returns left (µs, or true: the key is kept until it would have been), form and the corrected state.

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

local function correct_fixed_window(_, p, q, form, start, used)
  return start + ARGV[p + 1] - now, form, correct_windows(p, q, start, used, 0)
end

local function correct_sliding_window(_, p, q, form, start, used, last)
  return start + 2 * ARGV[p + 1] - now, form, correct_windows(p, q, start, used, last)
end

-- ARGV[q]  as of the other windows
local function correct_calendar_window(_, p, q, form, start, used)
  local left = true -- of a window that is not told
  for at = p + 2, p + 6, 2 do
    if ARGV[at + 1] + 0 == start then
      left = ARGV[at + 2] - now
    end
  end
  return left, form, correct_windows(p, q, start, used, 0) -- the period that it reads moves only last, which stays 0
end

-- ARGV[q]  delta at most: how many units more, when the charge came, and how many units a log can hold
local function correct_sliding_log(key, p, q, form, used, leaves, last, front, before, above)
  local period, delta, at = ARGV[p + 1] + 0, ARGV[q] + 0, ARGV[q + 1] + 0
  if delta > 0 then
    local units = max(min(delta, ARGV[q + 2] - used), 0)
    return false, form, used + units, leaves, units > 0 and max(now, last) or last
  end
  if used == 0 or at <= now - period or at > last then
    return false, form, used, leaves, last
  end
  local pair, pairs = above(front, 0, at - 1)
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
    call('PEXPIRE', key, remember(last + period - now))
  end
  return false, write, used - back, leaves, last
end

-- ARGV[q]  delta chargedAt frac deltaW deltaF chargeW chargeF
--          how many units more; when the charge was made, or its slot begins, and by which fraction;
--          the time that delta's units and the charge's take to refill
local function earlier(w, f, dw, df, rate, least)
  w, f = w - dw, f - df
  if f < 0 then
    w, f = w - 1, f + rate
  end
  if w < least then
    w, f = least, 0
  end
  return w, f
end

local function corrected(p, form, w, ahead, f, w2, f2)
  local grid = max(1000000, min(ARGV[p + 5] + 0, 60000000))
  if w2 ~= w or f2 ~= f then
    ahead = floor(w2 / 1000) - floor(now / 1000)
  end
  return w2 - w2 % grid + grid + 1000 - now, form, w2, ahead, f2
end

local function correct_bucket(_, p, q, form, w, ahead, f)
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
  return corrected(p, form, w, ahead, f, w2, f2)
end

-- ARGV[q]  as of the bucket
local function correct_queue(key, p, q, form, w, ahead, f)
  local rate = ARGV[p] + 0
  if ARGV[q] + 0 > 0 then
    return correct_bucket(key, p, q, form, w, ahead, f)
  end
  local begin_w, begin_f = earlier(w, f, ARGV[q + 5], ARGV[q + 6], rate, 0)
  if begin_f > 0 then
    begin_w = begin_w + 1
  end
  local w2, f2 = w, f
  if begin_w == ARGV[q + 1] + 0 and begin_f == ARGV[q + 2] + 0 then
    w2, f2 = earlier(w, f, ARGV[q + 3], ARGV[q + 4], rate, now)
  end
  return corrected(p, form, w, ahead, f, w2, f2)
end

-- ARGV[q]  delta
-- What is not there changes nothing.
local function correct_in_flight(_, _, q, form, a, b, c, drop)
  if ARGV[q] + 0 < 0 and drop then
    return false, drop, a - 1, b, c
  end
  return false, form, a, b, c
end

local corrections = {
  correct_fixed_window, correct_sliding_window, correct_sliding_log, correct_bucket, correct_queue, correct_in_flight,
  correct_calendar_window,
}

local places, next_place = {}, 1 -- of the codes
for i = 1, #KEYS do
  places[i] = next_place + 1
  next_place = next_place + 1 + ARGV[next_place]
  if #KEYS > 1 then -- of one, the step below reads before it writes
    at = places[i] + 1
    step(ARGV[places[i]] + 0, KEYS[i])
  end
end
local reply = { now }
for i = 1, #KEYS do
  local key, kind, p = KEYS[i], ARGV[places[i]] + 0, places[i] + 1
  at = p
  local _, left, _, _, healed, form, a, b, c, front, before, above = step(kind, key)
  local q = at
  local a2, b2, c2 = a, b, c
  if not healed or ARGV[q] + 0 > 0 then
    left, form, a2, b2, c2 = corrections[kind](key, p, q, form, a, b, c, front, before, above)
  end
  if not healed and a2 == a and b2 == b and c2 == c then
    -- nothing to write
  elseif left == true then
    call('SET', key, format(form, a2, b2, c2), 'KEEPTTL')
  elseif left then
    call('PSETEX', key, remember(left), format(form, a2, b2, c2))
  else
    form(a2, b2, c2)
  end
  reply[3 * i - 1], reply[3 * i], reply[3 * i + 1] = a2, b2, c2
end
return reply
