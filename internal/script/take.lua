-- Decides all checks of a request, none with a ban: checks all, then charges all or none.
-- KEYS     one for each check
-- ARGV     1 to charge, 0 to look; then for each check the code of its step, negative for a shadow
--          check, and the step's arguments
-- Returns  a string of lines: the clock's seconds and microseconds, and which checks have no room; then
--          the state of each check before the charge, as it is stored or, of a log, as its step says
-- Sent by  takeCall in algorithms/call.go, for nearly all requests
local admit, heals, lefts = decide(0, 1, #KEYS)
if ARGV[1] ~= '0' and (admit or heals) then
  for i = 1, #KEYS do
    local state = admit and charges[i] or heals and heals[i]
    if state then
      write(KEYS[i], state, lefts and lefts[i])
    end
  end
end
return table.concat(reply, '\n', 1, #KEYS + 1)
