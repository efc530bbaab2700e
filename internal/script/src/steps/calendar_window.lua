-- calendar_window: twin of calendarWindow.At and .Take in internal/step/calendar_window.go.
-- Key      as of fixed_window, but that the start is the window's date: midnight of its first day as if in UTC
-- ARGV[p]  rate cost; then of the windows before, at and after the time that the caller expects, and of the
--          next one, when it begins and its date. If the clock is in none of the first three, that is an error
--@ step
local rate, cost = ARGV[p] + 0, ARGV[p + 1] + 0
local at_window = p + 4
if now < ARGV[p + 4] + 0 then
  at_window = p + 2
elseif now >= ARGV[p + 6] + 0 then
  at_window = p + 6
end
local begin, ends, late = ARGV[at_window + 1] + 0, ARGV[at_window + 2] + 0, ARGV[at_window + 3] + 0
if now < ARGV[at_window] + 0 or now >= ends then
  error('none of the calendar windows holds ' .. format('%d', now), 0)
end
--@ include window
--@ correct
local function correct_calendar_window(_, now, p, q, form, start, used)
  local left = true -- of a window that is not told
  for window = p + 2, p + 6, 2 do
    if ARGV[window + 1] + 0 == start then
      left = ARGV[window + 2] - now
    end
  end
  local delta = ARGV[q] + 0
  if delta > 0 then
    used = used + min(delta, ARGV[q + 2] - used)
  elseif start == ARGV[q + 1] + 0 then
    used = max(used + delta, 0)
  end
  return left, form, start, used, 0
end
