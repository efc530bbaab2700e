
-- Looks at bans, counts denials, or bans by hand, one after the other.
-- KEYS     one for each ban
-- ARGV     'look', 'deny' or 'ban'; then for each key after within length, as of ban.lua
-- Returns  now in µs; then for each when it ends, 0 if there is none
local what, reply = ARGV[1], { now }
for i = 1, #KEYS do
  local key, q = KEYS[i], 3 * i - 1
  local since, expires, count, healed = ban_at(key, now, q)
  local write = healed and what ~= 'look'
  if what == 'ban' then
    since, expires, count, write = now, max(expires, now + ARGV[q + 2]), 0, true
  elseif what == 'deny' and expires <= now and ARGV[q] ~= '0' then
    since, expires, count = ban_deny(now, q, since, expires, count)
    write = true
  end
  if write then
    ban_write(key, now, q, since, expires, count)
  end
  reply[i + 1] = expires > now and expires or 0
end
return reply
