local KEYS, ARGV = KEYS, ARGV
local admit, take = ARGV[1] ~= '2', ARGV[1] ~= '0'
local reply = { time[1] .. ' ' .. time[2], '', '', '' }
local charges, lefts, heals = ARGV, nil, nil -- ARGV has a place for each check that has been read

for i = 1, #KEYS do
  local key, code, p = KEYS[i], ARGV[at], at + 1
  local fits, left, charge, was, healed, form, a, b, c, front, before = step(key, code, p)
  if healed then
    heals = heals or {}
    heals[i] = left and format(form, a, b, c) or function() form(a, b, c) end
  end
  if left ~= true or #charge ~= #was then
    lefts = lefts or {}
    lefts[i] = left
  end
  if not fits then
    admit = admit and code + 0 < 0
    reply[1] = reply[1] .. format(' %d', i)
  end
  charges[i], reply[i + 1] = fits and charge, was
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
