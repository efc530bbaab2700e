-- Corrects charges: twin of params.settle in algorithm.go and of the correct methods.
-- KEYS     one for each charge
-- ARGV     for each charge the place of its step, the step's arguments, and the correction's
-- Returns  now in µs; then for each charge its key's state
local call, format, max, min = redis.call, string.format, math.max, math.min

-- ARGV[p]  delta (units, negative gives back), begin (of the window that was charged)
local function correct_window(start, used, last, _, step, p)
  local rate, period = tonumber(ARGV[step]), tonumber(ARGV[step + 1])
  local delta, begin = tonumber(ARGV[p]), tonumber(ARGV[p + 1])
  if delta > 0 then
    used = used + min(delta, max(used, min(2 * rate, 94906265)) - used)
  elseif start == begin then
    used = max(used + delta, 0)
  elseif start == begin + period then
    last = max(last + delta, 0)
  end
  return start, used, last
end

-- ARGV[p]  delta; the time that its units take to refill and that the charge's took, in two
--          parts like TAT; when it was charged
local function correct_bucket(w, f, c, now, step, p)
  local rate = tonumber(ARGV[step])
  local delta, dw, df = tonumber(ARGV[p]), tonumber(ARGV[p + 1]), tonumber(ARGV[p + 2])
  if delta > 0 then
    w, f = w + dw, f + df
    if f >= rate then
      w, f = w + 1, f - rate
    end
    local most = now + ARGV[step + 5]
    if w >= most then
      w, f = most, 0
    end
    return w, f, c
  end
  local cw, cf = ARGV[p + 3] - max(now - ARGV[p + 5], 0), tonumber(ARGV[p + 4])
  if cw < dw or cw == dw and cf < df then
    dw, df = cw, cf
  end
  if dw < 0 or w == now and f == 0 then
    return w, f, c
  end
  w, f = w - dw, f - df
  if f < 0 then
    w, f = w - 1, f + rate
  end
  return w, f, c
end

local steps, arguments = { fixed_window, sliding_window, bucket }, { 3, 3, 6 }
local corrections, more = { correct_window, correct_window, correct_bucket }, { 2, 2, 6 }
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stored = call('MGET', unpack(KEYS))
local p, reply = 1, { now }

for i = 1, #KEYS do
  local place, a, b, c = tonumber(ARGV[p]), 0, 0, 0
  if stored[i] then
    a, b, c = string.match(stored[i], '^(%d+) (%d+) (%d+)$')
    a, b, c = tonumber(a), tonumber(b), tonumber(c)
    if not c then
      return redis.error_reply('ERR no state of a limit at key ' .. KEYS[i])
    end
  end
  local _, mended, ttl
  _, mended, ttl, a, b, c = steps[place](a, b, c, now, p + 1)
  local correction = p + 1 + arguments[place]
  local a2, b2, c2 = a, b, c
  if not mended or tonumber(ARGV[correction]) > 0 then
    a2, b2, c2 = corrections[place](a, b, c, now, p + 1, correction)
  end
  if mended or a2 ~= a or b2 ~= b or c2 ~= c then
    if corrections[place] == correct_bucket then
      ttl = a2 - now + 1
    end
    call('SET', KEYS[i], format('%d %d %d', a2, b2, c2),
      'PX', format('%d', math.floor((max(ttl, 0) + 999) / 1000) + 1))
  end
  reply[3 * i - 1], reply[3 * i], reply[3 * i + 1] = a2, b2, c2
  p = correction + more[place]
end
return reply
