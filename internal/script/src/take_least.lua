-- Decides all checks of a request as take_bans.lua does, some of which take less than their cost if less is
-- left: those whose checks are not in shadow take one number of units, and the others no more than that.
-- KEYS     as of take_bans.lua
-- ARGV     as of take_bans.lua, where the cost of such a check is the least that it takes; then 1 for each
--          such check and 0 for each other, in one word; and the least and the most that these checks take
-- Returns  what take_bans.lua returns, from which the caller computes what was charged
-- Sent by  takeBansCall in algorithms/call.go, if a check has AtLeast

--@ include begin

--@ include functions

--@ include ban

local most, least, takes_less = ARGV[#ARGV] + 0, ARGV[#ARGV - 1] + 0, ARGV[#ARGV - 2]
for _ = 1, 3 do
  ARGV[#ARGV] = nil
end

--@ include obey

-- How many units, n at most, have come after w + f/rate µs if each takes period/rate µs, and how long they take.
local function units_in(w, f, n, rate, period)
  local sizes, size, size_f = {}, 1, period % rate
  local size_w = (period - size_f) / rate
  while size <= n and (size_w < w or size_w == w and size_f <= f) do
    sizes[#sizes + 1] = { size, size_w, size_f }
    size, size_w, size_f = 2 * size, 2 * size_w, 2 * size_f
    if size_f >= rate then
      size_w, size_f = size_w + 1, size_f - rate
    end
  end
  local units, units_w, units_f = 0, 0, 0
  for i = #sizes, 1, -1 do
    local more, more_w, more_f = units + sizes[i][1], units_w + sizes[i][2], units_f + sizes[i][3]
    if more_f >= rate then
      more_w, more_f = more_w + 1, more_f - rate
    end
    if more <= n and (more_w < w or more_w == w and more_f <= f) then
      units, units_w, units_f = more, more_w, more_f
    end
  end
  return units, units_w, units_f
end

-- Raises the cost in ARGV to n or to what is left, which it returns, unless that is less than the least.
local function raised(place, n, left)
  n = min(n, left)
  if n >= least then
    ARGV[place] = n
  end
  return n
end

--@ raises

-- A function, for what miniredis' Lua does at an error that pcall catches: see above.
local function raise_costs()
  local takers, grant = {}, most
  for i = 1, checks do
    local key, code, p = KEYS[i], ARGV[at], at + 1
    local _, _, _, _, _, _, a, b, c = step(key, code, p)
    if sub(takes_less, i, i) == '1' and not foreign[key] then
      takers[#takers + 1] = { code, p, a, b, c }
      if code + 0 > 0 then
        grant = min(grant, raises[code](p, grant, a, b, c))
      end
    end
  end
  for _, t in ipairs(takers) do
    raises[t[1]](t[2], grant, t[3], t[4], t[5])
  end
  at = 2
end
raise_costs()

if bans == 0 then
  return take()
end
--@ include count_denials
