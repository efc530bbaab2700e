-- What the scripts share that call functions; take.lua has none.
local max, min = math.max, math.min

-- The ms for which to remember what counts for some µs more.
local function remember(us)
  return floor((max(us, 0) + 1999) / 1000)
end
