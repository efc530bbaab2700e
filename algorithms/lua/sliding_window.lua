-- sliding_window: twin of slidingWindow.at and .take in sliding_window.go.
-- State    start used last    the window's start in µs, the units taken in it and in the one before
-- ARGV[p]  rate period cost
-- Returns  as every step: room?, mended?, µs to remember it, the state before, the state after
local function sliding_window(start, used, last, now, p)
  local rate, period, cost = ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2] + 0
  local begin, mended = now - now % period, false
  if used == 0 and last == 0 then
    start = begin
  elseif start > now + period then
    start, used, last, mended = begin, rate, 0, true
  elseif start == begin - period then
    last = used -- first: miniredis' Lua gets "used, last = 0, used" wrong
    start, used = begin, 0
  elseif start < begin then
    start, used, last = begin, 0, 0
  end
  local room, left = rate - used - cost, start + period - now
  local ok = room >= 0
  if ok and last > room then
    local rest = period % last
    ok = left <= room * ((period - rest) / last) + math.floor(room * rest / last)
  end
  return ok, mended, left + period, start, used, last, start, used + cost, last
end
