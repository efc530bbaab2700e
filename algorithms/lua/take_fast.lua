
-- As take.lua, but for the hot path: the steps stand in the loop itself, since calling them, and making
-- them anew with each run, costs a third of what they compute; states are formatted before it is known
-- whether they are written; and the reply is a string.
-- KEYS     one for each check
-- ARGV     as of take.lua
-- Returns  a string: the clock's seconds and microseconds; then for each check a line: 1 or 0 (has it
--          room?) and the state before the charge, as it is stored or, of a log, as take.lua returns it
local KEYS, ARGV = KEYS, ARGV
local admit, take, at = true, ARGV[1] == '1', 2
local reply = time[1] .. ' ' .. time[2]
local charged, ttls, healed = { false, false, false }, { false, false, false }, nil

for i = 1, #KEYS do
  local key, code, p = KEYS[i], ARGV[at] + 0, at + 1
  local shadow, fits, clock_error, ttl_ms, form, a, b, c, a2, b2, c2, raw = code < 0, false, false
  if shadow then
    code = -code
  end
  -- the steps
  if fits then
    charged[i] = ttl_ms and format(form, a2, b2, c2) or { form, a2, b2, c2 }
  end
  if clock_error then
    healed = healed or {}
    healed[i] = ttl_ms and format(form, a, b, c) or { form, a, b, c }
  end
  ttls[i] = ttl_ms
  reply = reply .. (fits and '\n1' or '\n0') .. raw
  admit = admit and (fits or shadow)
end

if take then
  for i = 1, #KEYS do
    local write, ttl = admit and charged[i] or healed and healed[i], ttls[i]
    if not write then
      -- nothing to write
    elseif ttl == true then
      call('SET', KEYS[i], write, 'KEEPTTL')
    elseif ttl then
      call('PSETEX', KEYS[i], format('%d', ttl), write)
    else
      write[1](write[2], write[3], write[4])
    end
  end
end
return reply
