
-- As take.lua, but for the hot path: the steps stand in the loop itself, since making functions and
-- calling them costs a third of what they compute; codes are compared as text; there are tables only for
-- what is rare; states of equal length are written in place; and the reply is a string.
-- KEYS     one for each check
-- ARGV     as of take.lua
-- Returns  a string of lines: the clock's seconds and microseconds, and which checks have no room; then
--          the state of each check before the charge, as it is stored or, of a log, as take.lua returns it
local KEYS, ARGV = KEYS, ARGV
local admit, take, at = true, ARGV[1] == '1', 2
local reply = { time[1] .. ' ' .. time[2], '', '', '' }
local charges, lefts, heals = ARGV, nil, nil -- ARGV has a place for each check that has been read

for i = 1, #KEYS do
  local key, code, p = KEYS[i], ARGV[at], at + 1
  local fits, left_us, charge, raw, clock_error, form, a, b, c
  -- the steps
  if clock_error then
    heals = heals or {}
    heals[i] = left_us and format(form, a, b, c) or function() form(a, b, c) end
  end
  if left_us ~= true or #charge ~= #raw then
    lefts = lefts or {}
    lefts[i] = left_us
  end
  if not fits then
    admit = admit and code + 0 < 0
    reply[1] = reply[1] .. format(' %d', i)
  end
  charges[i], reply[i + 1] = fits and charge, raw
end

if take then
  for i = 1, #KEYS do
    local write, left = admit and charges[i] or heals and heals[i], lefts and lefts[i]
    if not write then
      -- nothing to write
    elseif left == nil and #write > 17 then -- no number, of which SETRANGE would make a string
      call('SETRANGE', KEYS[i], '0', write)
    elseif left == nil or left == true then
      call('SET', KEYS[i], write, 'KEEPTTL')
    elseif left then
      call('PSETEX', KEYS[i], format('%d', floor((left + 1999) / 1000)), write)
    else
      write()
    end
  end
end
return table.concat(reply, '\n', 1, #KEYS + 1)
