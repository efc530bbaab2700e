local reply = { take() .. '\nbans' }
if mode ~= '0' then
  for _, k in ipairs(kept) do
    hold(k[1], k[2], 1) -- a shadow check is charged there
  end
end
for j = 1, bans do
  local p = args + 6 * j - 6
  local q, spare = p + 1, ARGV[p + 4] + 0
  local fits, w, f = unpack(found[KEYS[ARGV[p] + 0]])
  local since, expires, count, healed = unpack(known[keys[j]])
  local begins = false
  local early = w < now + spare or w == now + spare and f <= ARGV[p + 5] + 0
  if mode ~= '0' then
    local counts = not fits and not told[keys[j]] and expires <= now and ARGV[q] + 0 > 0 and not (spare >= 0 and early)
    if counts then
      since, expires, count = ban_deny(now, q, since, expires, count)
      begins, told[keys[j]] = expires > now, true
    end
    if counts or healed and obeyed[j] then
      ban_write(keys[j], now, q, since, expires, count)
      known[keys[j]] = { since, expires, count, false }
    end
  end
  local denies = obeyed[j] and (banned[j] or not fits) and expires > now
  reply[j + 1] = format('%d', denies and (begins and -expires or expires) or 0)
end
return table.concat(reply, ' ')
