-- Decides the checks of a request: their keys are behind place d of KEYS, and its lines begin at place r of
-- the reply.
for i = 1, checks do
  local key, code, p = KEYS[d + i], codes[at], at + 1
  local fits, left, charge, was, healed, form, a, b, c, front, before = step(key, code, p)
  if healed then
    heals = heals or {}
    heals[i] = left and format(form, a, b, c) or function() form(a, b, c) end
  end
  if left ~= true or #charge ~= #was then
    lefts = lefts or {}
    lefts[i] = left
  end
  if not fits then
    admit = admit and code + 0 < 0
    reply[r] = reply[r] .. format(' %d', i)
  end
  charges[i], reply[r + i] = fits and charge, was
end
