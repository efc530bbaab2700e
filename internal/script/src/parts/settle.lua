
-- Corrects charges, one after the other: twin of correction.settle in settle.go.
-- KEYS     one for each charge
-- ARGV     for each charge how many numbers follow; the code of its step, the step's arguments, and
--          its correction's, the first of which is by how many units the charge is to cost more
-- Returns  now in µs; then for each charge its key's state
--
-- A correction is a function of a key, of now, of the places p and q of the step's arguments and of its
-- own, and of what the step returned: form, the state, and what comes after it. It returns left, form and the
-- corrected state.
local p, reply = 1, { now }

for i = 1, #KEYS do
  local key, code = KEYS[i], ARGV[p + 1] + 0
  local q, _, left, _, healed, form, a, b, c, front, before = steps[code](key, now, p + 2)
  local a2, b2, c2 = a, b, c
  if not healed or ARGV[q] + 0 > 0 then
    left, form, a2, b2, c2 = corrections[code](key, now, p + 2, q, form, a, b, c, front, before)
  end
  if not healed and a2 == a and b2 == b and c2 == c then
    -- nothing to write
  elseif left then
    call('PSETEX', key, format('%d', remember(left)), format(form, a2, b2, c2))
  else
    form(a2, b2, c2)
  end
  reply[3 * i - 1], reply[3 * i], reply[3 * i + 1] = a2, b2, c2
  p = p + 1 + ARGV[p]
end
return reply
