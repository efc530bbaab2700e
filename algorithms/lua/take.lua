-- Decides all checks of a request: checks all, then charges all or none.
-- KEYS     one for each check
-- ARGV     1 to charge, 0 to look; then for each check the place of its step, negative for a
--          shadow check, and the step's arguments
-- Returns  now in µs; then for each check 1 or 0 (has it room?) and its state: after the charge
--          if it was charged, before it otherwise
-- Numbers go to redis.call only through string.format('%d'): Lua's own conversion keeps 14 digits.
-- x + 0 is tonumber(x) at half the cost, and tables are made at the size that three checks need,
-- as growing them costs more than the arithmetic.
local call, format = redis.call, string.format
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
local stored = call('MGET', unpack(KEYS))
local admit, p = true, 2
local reply = { now, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
local after = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

for i = 1, #KEYS do
  local place, a, b, c = ARGV[p] + 0, 0, 0, 0
  local shadow = place < 0
  if shadow then
    place = -place
  end
  if stored[i] then
    a, b, c = string.match(stored[i], '^(%d+) (%d+) (%d+)$')
    if not c then
      return redis.error_reply('ERR no state of a limit at key ' .. KEYS[i])
    end
    a, b, c = a + 0, b + 0, c + 0
  end
  local r, s = 4 * i - 2, 8 * i - 7
  local ok, mended, ttl, a2, b2, c2
  after[s + 3], after[s + 4] = place, p + 1
  if place == 1 then
    ok, mended, ttl, a, b, c, a2, b2, c2 = fixed_window(a, b, c, now, p + 1)
    p = p + 4
  elseif place == 2 then
    ok, mended, ttl, a, b, c, a2, b2, c2 = sliding_window(a, b, c, now, p + 1)
    p = p + 4
  elseif place == 3 then
    ok, mended, ttl, a, b, c, a2, b2, c2 = sliding_log(a, b, c, now, p + 1, KEYS[i])
    p = p + 4
  else
    ok, mended, ttl, a, b, c, a2, b2, c2 = bucket(a, b, c, now, p + 1)
    p = p + 7
  end
  reply[r], reply[r + 1], reply[r + 2], reply[r + 3] = ok and 1 or 0, a, b, c
  after[s], after[s + 1], after[s + 2] = ok, mended, ttl
  after[s + 5], after[s + 6], after[s + 7] = a2, b2, c2
  admit = admit and (ok or shadow)
end
reply[4 * #KEYS + 2] = nil -- a reply ends at the first nil

local charge = admit and ARGV[1] == '1'
for i = 1, #KEYS do
  local r, s = 4 * i - 2, 8 * i - 7
  local charged, mended = charge and after[s], after[s + 1]
  if charged then
    reply[r + 1], reply[r + 2], reply[r + 3] = after[s + 5], after[s + 6], after[s + 7]
  end
  if charged or mended then
    local key = KEYS[i]
    local ttl = format('%d', (after[s + 2] + 1999) / 1000)
    if after[s + 3] == 3 then
      write_log(key, mended, reply[r + 1], reply[r + 2], reply[r + 3], after[s + 4])
      call('PEXPIRE', key, ttl)
    else
      call('PSETEX', key, ttl, format('%d %d %d', reply[r + 1], reply[r + 2], reply[r + 3]))
    end
  end
end
return reply
