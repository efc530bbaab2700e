local KEYS, ARGV = KEYS, ARGV
local admit, take = ARGV[1] ~= '2', ARGV[1] ~= '0'
local reply = { time[1] .. ' ' .. time[2], '', '', '' }
local charges, lefts, heals = ARGV, nil, nil -- ARGV has a place for each check that has been read
local codes, checks, d, r = ARGV, #KEYS, 0, 1

--@ include decide

if take then
  for i = 1, checks do
    local key, write, left = KEYS[i], admit and charges[i] or heals and heals[i], lefts and lefts[i]
    if write then
      --@ include write
    end
  end
end
return table.concat(reply, '\n', 1, checks + 1)
