-- Decides all checks of a request: checks all, then charges all or none.
-- KEYS     one for each check
-- ARGV     1 to charge, 0 to look; then for each check the place of its step, negative for a
--          shadow check, and the step's arguments
-- Returns  now in µs; then for each check 1 or 0 (has it room?) and its state: after the charge
--          if it was charged, before it otherwise
-- Numbers go to redis.call only through string.format('%d'): Lua's own conversion keeps 14 digits.
local steps = { fixed_window, sliding_window, sliding_log, bucket, bucket }
local arguments = { 3, 3, 3, 6, 6 }
local writes = { nil, nil, write_log, nil, nil }
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stored = call('MGET', unpack(KEYS))
local admit, p, reply, after = true, 2, { now }, {}

for i = 1, #KEYS do
  local place, a, b, c = tonumber(ARGV[p]), 0, 0, 0
  local shadow = place < 0
  if shadow then
    place = -place
  end
  if stored[i] then
    a, b, c = string.match(stored[i], '^(%d+) (%d+) (%d+)$')
    a, b, c = tonumber(a), tonumber(b), tonumber(c)
    if not c then
      return redis.error_reply('ERR no state of a limit at key ' .. KEYS[i])
    end
  end
  local r, s = 4 * i - 2, 8 * i - 7
  local ok, mended, ttl
  ok, mended, ttl, reply[r + 1], reply[r + 2], reply[r + 3], after[s + 5], after[s + 6], after[s + 7] =
    steps[place](a, b, c, now, p + 1, KEYS[i])
  reply[r], after[s], after[s + 1], after[s + 2], after[s + 3], after[s + 4] = ok and 1 or 0, ok, mended, ttl, place, p + 1
  admit = admit and (ok or shadow)
  p = p + 1 + arguments[place]
end

local charge = admit and ARGV[1] == '1'
for i = 1, #KEYS do
  local r, s = 4 * i - 2, 8 * i - 7
  local charged, mended = charge and after[s], after[s + 1]
  if charged then
    reply[r + 1], reply[r + 2], reply[r + 3] = after[s + 5], after[s + 6], after[s + 7]
  end
  if charged or mended then
    local key, write = KEYS[i], writes[after[s + 3]]
    local ttl = format('%d', math.floor((after[s + 2] + 999) / 1000) + 1)
    if write then
      write(key, mended, reply[r + 1], reply[r + 2], reply[r + 3], after[s + 4])
      call('PEXPIRE', key, ttl)
    else
      call('SET', key, format('%d %d %d', reply[r + 1], reply[r + 2], reply[r + 3]), 'PX', ttl)
    end
  end
end
return reply
