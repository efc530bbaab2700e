-- sliding_window: twin of slidingWindow.At and .Take in internal/step/sliding_window.go.
-- Key      "start used last": the window's start in µs, the units taken in it and in the one before. Where the
--          start is such a second and both are less than a thousand, -(start + used * 1000 + last): a number,
--          as of fixed_window, and told from that by its sign.
-- ARGV[p]  rate period cost
--@ step
local rate, period, cost = ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2] + 0
local begin = now - now % period
local stored, start, used, last, head, tail = -1, begin, 0, 0, '', ''
was = call('GETRANGE', key, '0', '63')
if was ~= '' then
  local space = #was >= 20 and #was <= 34 and find(was, ' ', 19, true)
  if space then
    head, used, tail = sub(was, 1, 17), sub(was, 18, space - 1) + 0, sub(was, space)
    stored, last = head + 0, tail + 0
  elseif #was == 17 then
    stored = 0 - was
    used, last = stored % 1000000, stored % 1000
    stored, used = stored - used, (used - last) / 1000
    if stored ~= begin and not find(was, '^%-%d+$') then
      error('no state of a limit at key ' .. key, 0)
    end
  else
    error('no state of a limit at key ' .. key, 0)
  end
  if stored == begin or used == 0 and last == 0 then
    start = begin
  elseif stored > now + period then
    healed = true -- all of it counts now
  elseif stored == begin - period then
    last = used -- first: miniredis' Lua gets "used, last = 0, used" wrong
    used = 0
  elseif stored < begin then
    used, last = 0, 0
  else
    start = stored
  end
end
local room, view = rate - used - cost, start + period - now
fits = room >= 0
if fits and last > room then
  local rest = period % last
  fits = view <= room * ((period - rest) / last) + floor(room * rest / last)
end
local after = used + cost
left = start == stored or view + period
if after < 1000 and last < 1000 and start % 1000000 == 0 and start >= 1000000000000000 then
  charge = format('%d', -start - after * 1000 - last)
elseif left == true and tail ~= '' then
  charge = head .. format('%d', after) .. tail
else
  charge = format('%016d %d %d', start, after, last)
end
form, a, b, c = '%016d %d %d', start, used, last
--@ correct
-- correct: as of fixed_window.
local function correct_sliding_window(_, now, p, q, form, start, used, last)
  return start + 2 * ARGV[p + 1] - now, form, correct_windows(p, q, start, used, last)
end
