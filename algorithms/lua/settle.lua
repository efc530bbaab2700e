-- Corrects charges: twin of params.settle in algorithm.go and of the correct methods.
-- KEYS     one for each charge
-- ARGV     for each charge the place of its step, the step's arguments, and the correction's: delta
--          (units; negative gives back), to when it was charged (step.charged), and for buckets the time that delta's
--          units take to refill and that the charge's took, each in two parts like TAT, and the
--          fraction of when it was charged (leaky_bucket: when its slot begins)
-- Returns  now in µs; then for each charge its key's state
local call, format, max, min = redis.call, string.format, math.max, math.min

-- Each correction returns the state that it leaves.
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

local function correct_log(used, leaves, last, now, step, p, key)
  local rate, delta, charged_at = tonumber(ARGV[step]), tonumber(ARGV[p]), tonumber(ARGV[p + 1])
  if delta > 0 then
    local units = min(delta, max(2 * rate - used, 0))
    if units > 0 then
      used, last = used + units, max(now, last)
      append_log(key, last, units, used)
    end
    return used, leaves, last
  end
  local back, i, before = -delta, -2, used
  while used > 0 and back > 0 do
    local entry = call('LINDEX', key, i)
    if not entry then
      break
    end
    local at, units = log_entry(entry)
    if at < charged_at then
      break
    end
    if at == charged_at then
      local n = min(back, units)
      call('LSET', key, i, format('%d %d', at, units - n))
      back, used = back - n, used - n
    end
    i = i - 1
  end
  if used == 0 then
    call('DEL', key)
    return 0, leaves, 0
  end
  if used ~= before then
    call('LREM', key, 0, format('%d 0', charged_at))
    call('LSET', key, -1, format('%d', used))
    last = log_entry(call('LINDEX', key, -2))
  end
  return used, leaves, last
end

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

local function later(w, f, dw, df, rate, most)
  w, f = w + dw, f + df
  if f >= rate then
    w, f = w + 1, f - rate
  end
  if w >= most then
    w, f = most, 0
  end
  return w, f
end

local function correct_bucket(w, f, c, now, step, p)
  local rate, dw, df = tonumber(ARGV[step]), tonumber(ARGV[p + 2]), tonumber(ARGV[p + 3])
  if tonumber(ARGV[p]) > 0 then
    w, f = later(w, f, dw, df, rate, now + ARGV[step + 5])
    return w, f, c
  end
  local cw, cf = ARGV[p + 4] - max(now - ARGV[p + 1], 0), tonumber(ARGV[p + 5])
  if cw < dw or cw == dw and cf < df then
    dw, df = cw, cf
  end
  if dw >= 0 then
    w, f = earlier(w, f, dw, df, rate, now)
  end
  return w, f, c
end

local function correct_queue(w, f, c, now, step, p)
  if tonumber(ARGV[p]) > 0 then
    return correct_bucket(w, f, c, now, step, p)
  end
  local rate, cw, cf = tonumber(ARGV[step]), tonumber(ARGV[p + 4]), tonumber(ARGV[p + 5])
  local begin_w, begin_f = earlier(w, f, cw, cf, rate, 0)
  if begin_f > 0 then
    begin_w = begin_w + 1
  end
  if begin_w == tonumber(ARGV[p + 1]) and begin_f == tonumber(ARGV[p + 6]) then
    w, f = earlier(w, f, tonumber(ARGV[p + 2]), tonumber(ARGV[p + 3]), rate, now)
  end
  return w, f, c
end

local steps = { fixed_window, sliding_window, sliding_log, bucket, bucket }
local arguments = { 3, 3, 3, 6, 6 }
local corrections = { correct_window, correct_window, correct_log, correct_bucket, correct_queue }
local more = { 2, 2, 2, 7, 7 }
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stored = call('MGET', unpack(KEYS))
local p, reply = 1, { now }

for i = 1, #KEYS do
  local place, key, a, b, c = tonumber(ARGV[p]), KEYS[i], 0, 0, 0
  if stored[i] then
    a, b, c = string.match(stored[i], '^(%d+) (%d+) (%d+)$')
    a, b, c = tonumber(a), tonumber(b), tonumber(c)
    if not c then
      return redis.error_reply('ERR no state of a limit at key ' .. key)
    end
  end
  local _, mended, ttl
  _, mended, ttl, a, b, c = steps[place](a, b, c, now, p + 1, key)
  local is_log = corrections[place] == correct_log
  if is_log and mended then
    write_log(key, true, a, b, c, p + 1)
  end
  local correction = p + 1 + arguments[place]
  local a2, b2, c2 = a, b, c
  if not mended or tonumber(ARGV[correction]) > 0 then
    a2, b2, c2 = corrections[place](a, b, c, now, p + 1, correction, key)
  end
  if is_log then
    ttl = c2 + ARGV[p + 2] - now
  elseif place > 3 then
    ttl = a2 - now + 1
  end
  ttl = format('%d', math.floor((max(ttl, 0) + 999) / 1000) + 1)
  if is_log then
    call('PEXPIRE', key, ttl)
  elseif mended or a2 ~= a or b2 ~= b or c2 ~= c then
    call('SET', key, format('%d %d %d', a2, b2, c2), 'PX', ttl)
  end
  reply[3 * i - 1], reply[3 * i], reply[3 * i + 1] = a2, b2, c2
  p = correction + more[place]
end
return reply
