-- Decides all checks of a request: checks all, then charges all or none.
-- KEYS     one for each check
-- ARGV     1 to charge, 0 to look; then for each check the code of its step, negative for a shadow
--          check, and the step's arguments
-- Returns  a string of lines: the clock's seconds and microseconds, and which checks have no room; then
--          the state of each check before the charge, as it is stored or, of a log, as its step says
-- Sent by  takeCall in algorithms/call.go, for nearly all requests
local reply, charges = { time[1] .. ' ' .. time[2], '', '', '' }, { '', '', '', '' }
local admit, heals, lefts = decide(0, #KEYS, reply, 1, charges)
for i = 1, ARGV[1] ~= '0' and (admit or heals) and #KEYS or 0 do
  local state, left = admit and charges[i] or heals and heals[i], lefts and lefts[i]
  if not state then
    -- nothing to write
  elseif left == nil and #state > 17 then -- no number, of which SETRANGE would make a string
    call('SETRANGE', KEYS[i], '0', state)
  elseif left == nil or left == true then
    call('SET', KEYS[i], state, 'KEEPTTL')
  elseif left then
    call('PSETEX', KEYS[i], format('%d', floor((left + 1999) / 1000)), state)
  else
    state()
  end
end
return table.concat(reply, '\n', 1, #KEYS + 1)
