local reply = { now }

if #KEYS > 1 then -- of one, the step below reads before it writes
  at = 1
  for i = 1, #KEYS do
    local p = at + 2
    step(KEYS[i], ARGV[p - 1], p)
    at = p - 1 + ARGV[p - 2]
  end
end
at = 1
for i = 1, #KEYS do
  local key, code, p = KEYS[i], ARGV[at + 1], at + 2
  local _, left, _, _, healed, form, a, b, c, front, before = step(key, code, p)
  local q = at
  local a2, b2, c2 = a, b, c
  if not healed or ARGV[q] + 0 > 0 then
    left, form, a2, b2, c2 = corrections[code](key, now, p, q, form, a, b, c, front, before)
  end
  if not healed and a2 == a and b2 == b and c2 == c then
    -- nothing to write
  elseif left == true then
    call('SET', key, format(form, a2, b2, c2), 'KEEPTTL')
  elseif left then
    call('PSETEX', key, format('%d', remember(left)), format(form, a2, b2, c2))
  else
    form(a2, b2, c2)
  end
  reply[3 * i - 1], reply[3 * i], reply[3 * i + 1] = a2, b2, c2
  at = p - 1 + ARGV[p - 2]
end
return reply
