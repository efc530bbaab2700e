-- sliding_log: twin of slidingLog.at and .take in sliding_log.go.
-- Key      a list: an entry "time units" for each charge, oldest first; last the sum of the units
-- State    used leaves last    the units that count, when the one came whose leaving makes room, and
--          when the last one came
-- ARGV[p]  rate period cost
-- Returns  as every step: room?, mended?, µs to remember it, the state before, the state after
local function log_entry(text)
  local at, units = string.match(text, '^(%d+) (%d+)$')
  return tonumber(at), tonumber(units)
end

local function sliding_log(_, _, _, now, p, key)
  local rate, period, cost = tonumber(ARGV[p]), tonumber(ARGV[p + 1]), tonumber(ARGV[p + 2])
  local tail = redis.call('LRANGE', key, -2, -1)
  local used, leaves, last = tonumber(tail[2] or 0), 0, 0
  if tail[2] then
    last = log_entry(tail[1])
  end
  if last > now + period then
    return false, true, period, rate, now, now, rate, now, now
  end

  local before, first, first_units = used, 0, 0
  while used > 0 do
    first, first_units = log_entry(redis.call('LINDEX', key, 0))
    if first > now - period then
      break
    end
    used = used - first_units
    redis.call('LPOP', key)
  end
  if used == 0 then
    last = 0
    if tail[2] then
      redis.call('DEL', key)
    end
  elseif used ~= before then
    redis.call('LSET', key, -1, string.format('%d', used))
  end

  local over, from = used + cost - rate, 0
  if over > 0 and over <= first_units then -- the usual denial
    leaves, over = first, 0
  end
  while over > 0 and over <= used do
    for _, entry in ipairs(redis.call('LRANGE', key, from, from + 99)) do
      local at, units = log_entry(entry)
      over = over - units
      if over <= 0 then
        leaves = at
        break
      end
    end
    from = from + 100
  end
  local at = math.max(now, last)
  return used + cost <= rate, false, at + period - now, used, leaves, last, used + cost, 0, at
end

-- Appends units that came at a time; total is with them.
local function append_log(key, at, units, total)
  local entry, sum = string.format('%d %d', at, units), string.format('%d', total)
  if total > units then
    redis.call('LSET', key, -1, entry)
    redis.call('RPUSH', key, sum)
  else
    redis.call('RPUSH', key, entry, sum)
  end
end

-- Writes what sliding_log returned: a charge, or a log without a clock's error.
local function write_log(key, mended, used, _, last, p)
  local units = tonumber(ARGV[p + 2])
  if mended then
    redis.call('DEL', key)
    units = used
  end
  append_log(key, last, units, used)
end
