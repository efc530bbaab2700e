
-- Decides all checks of a request: checks all, then charges all or none.
-- KEYS     one for each check
-- ARGV     1 to charge, 0 to look, 2 to deny what 1 would charge; then for each check the code of its
--          step, negative for a shadow check, and the step's arguments
-- Returns  now in µs; then for each check 1 or 0 (has it room?) and its state before the charge
-- Tables are made at the size that three checks need: growing them costs more than the arithmetic.
local admit, p = true, 2
local reply = { now, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
local after = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

for i = 1, #KEYS do
  local r, s, code = 4 * i - 2, 5 * i - 4, ARGV[p] + 0
  local shadow, ok = code < 0, false
  if shadow then
    code = -code
  end
  p, ok, after[s + 1], after[s + 2], after[s + 3], after[s + 4], reply[r + 1], reply[r + 2], reply[r + 3] = steps[code](KEYS[i], now, p + 1)
  reply[r], after[s] = ok and 1 or 0, ok
  admit = admit and (ok or shadow)
end
reply[4 * #KEYS + 2] = nil -- a reply ends at the first nil

local take = ARGV[1] ~= '0'
local charge = admit and ARGV[1] == '1'
for i = 1, #KEYS do
  local s, r = 5 * i - 4, 4 * i - 2
  local left, write, healed, form = after[s + 1], after[s + 2], after[s + 3], after[s + 4]
  if not (charge and after[s]) then
    local a, b, c = reply[r + 1], reply[r + 2], reply[r + 3]
    write = take and healed and (left and format(form, a, b, c) or function() form(a, b, c) end)
  end
  if not write then
    -- nothing to write
  elseif left == true then
    call('SET', KEYS[i], write, 'KEEPTTL')
  elseif left then
    call('PSETEX', KEYS[i], format('%d', remember(left)), write)
  else
    write()
  end
end
return reply
