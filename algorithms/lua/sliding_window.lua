
-- sliding_window: twin of slidingWindow.at and .take in sliding_window.go.
-- Key      "start used last": the window's start in µs, the units taken in it and in the one before
-- ARGV[p]  rate period cost
local function sliding_window(key, now, p)
  local rate, period, cost = ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2] + 0
  local begin, was, healed = now - now % period, read(key, 20, 34), false
  local stored, start, used, last = -1, begin, 0, 0
  if was then
    local space = find(was, ' ', 19, true) or foreign(key)
    stored, used, last = sub(was, 1, 16) + 0, sub(was, 18, space - 1) + 0, sub(was, space + 1) + 0
    if used == 0 and last == 0 then
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
  local room, left = rate - used - cost, start + period - now
  local ok = room >= 0
  if ok and last > room then
    local rest = period % last
    ok = left <= room * ((period - rest) / last) + floor(room * rest / last)
  end
  local ttl = start == stored or remember(left + period)
  return p + 3, ok, healed, ttl, '%016d %d %d', start, used, last, start, used + cost, last
end

-- correct: as of fixed_window.
local function correct_sliding_window(_, now, p, q, form, start, used, last)
  return remember(start + 2 * ARGV[p + 1] - now), form, correct_windows(p, q, start, used, last)
end
