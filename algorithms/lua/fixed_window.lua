-- fixed_window: twin of fixedWindow.at and .take in fixed_window.go.
-- State    start used _    the window's start in µs, the units taken in it
-- ARGV[p]  rate period cost
-- Returns  as every step: room?, mended?, µs to remember it, the state before, the state after
local function fixed_window(start, used, _, now, p)
  local rate, period, cost = ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2] + 0
  local begin, mended = now - now % period, false
  if used == 0 then
    start = begin
  elseif start > now + period then
    start, used, mended = begin, rate, true
  elseif start < begin then
    start, used = begin, 0
  end
  return used + cost <= rate, mended, start + period - now, start, used, 0, start, used + cost, 0
end
