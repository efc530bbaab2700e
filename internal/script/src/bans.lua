-- Looks at bans, heals them, counts denials, or bans and lifts by hand, one after the other.
-- KEYS     one for each ban; by hand, each followed by that of the count and that where it is kept
-- ARGV     'look', 'heal', 'deny', 'ban' or 'lift'; then for each ban after within length, as of a ban below
-- Returns  now in µs; then for each when it ends, negative if it begins with this denial, 0 if there is none
-- Sent by  bansCall in algorithms/call.go: by hand, and where keys are sharded

--@ include begin

--@ include functions

--@ include ban

local what, reply = ARGV[1], { now }
local by_hand = what == 'ban' or what == 'lift'
local keys = by_hand and 3 or 1
for i = 1, #KEYS / keys do
  local at, q = keys * (i - 1) + 1, 3 * i - 1
  local key = KEYS[at]
  local since, expires, count, healed = ban_at(key, now, q)
  local begins = false
  if what == 'ban' then
    since, expires, count = now, max(expires, now + ARGV[q + 2]), 0
    hold(KEYS[at + 1], KEYS[at + 2], ban_write(key, now, q, since, expires, count))
  elseif what == 'lift' then
    expires = 0
    call('DEL', key)
    if held(KEYS[at + 1]) then
      release(KEYS[at + 1], KEYS[at + 2])
    end
  elseif what == 'deny' and expires <= now and ARGV[q] ~= '0' then
    since, expires, count = ban_deny(now, q, since, expires, count)
    begins = expires > now
    ban_write(key, now, q, since, expires, count)
  elseif what ~= 'look' and healed then -- a clock that was far ahead wrote it
    ban_write(key, now, q, since, expires, count)
  end
  reply[i + 1] = expires > now and (begins and -expires or expires) or 0
end
return reply
