local stored, start, used = -1, begin, 0
was = call('GETRANGE', key, '0', '63')
if was ~= '' then
  if #was == 16 then
    used = was % 1000000
    stored = was - used
    if stored ~= begin and find(was, '%D') then -- a fraction, or hexadecimal
      error('no state of a limit at key ' .. key, 0)
    end
  elseif #was >= 18 and #was <= 32 then
    stored, used = sub(was, 1, 16) + 0, sub(was, 18) + 0
  else
    error('no state of a limit at key ' .. key, 0)
  end
  if stored == begin or used == 0 then
    start = begin
  elseif stored > late then
    healed = true -- all of it counts now
  elseif stored < begin then
    used = 0
  else
    start = stored
  end
end
local after = used + cost
fits, left = after <= rate, start == stored or ends - now
if after < 1000000 and start % 1000000 == 0 and start >= 1000000000000000 then
  charge = format('%d', start + after)
else
  charge = format('%016d %d', start, after)
end
form, a, b, c = '%016d %d', start, used, 0
