--@ include steps

--@ helpers
-- The step of a code, as a function. It moves at behind the arguments.
local function step(key, code, p)
  local fits, left, charge, was, healed, form, a, b, c, front, before
  --@ steps
  return fits, left, charge, was, healed, form, a, b, c, front, before
end
