-- fixed_window: twin of fixedWindow.At and .Take in internal/step/fixed_window.go.
-- Key      "start used": the window's start in µs, the units taken in it. Where the start is a whole second of
--          this century and the units are less than a million, their sum: Redis keeps that as a number, in
--          less than a string. It has no leading zeros, which miniredis' Lua reads as octal.
-- ARGV[p]  rate period cost
--@ step
local rate, period, cost = ARGV[p] + 0, ARGV[p + 1] + 0, ARGV[p + 2] + 0
local begin = now - now % period
local ends, late = begin + period, now + period
--@ include window
--@ correct
-- correct: twin of correction.inWindows in internal/step/fixed_window.go.
-- ARGV[q]  delta begin most: how many units more, the start of the window that was charged, and how many
--          units a window can hold
local function correct_windows(p, q, start, used, last)
  local period, delta, begin = ARGV[p + 1] + 0, ARGV[q] + 0, ARGV[q + 1] + 0
  if delta > 0 then
    used = used + min(delta, ARGV[q + 2] - used)
  elseif start == begin then
    used = max(used + delta, 0)
  elseif start == begin + period then
    last = max(last + delta, 0)
  end
  return start, used, last
end

local function correct_fixed_window(_, now, p, q, form, start, used)
  return start + ARGV[p + 1] - now, form, correct_windows(p, q, start, used, 0)
end
