
-- Decides all checks of a request, some with a ban, as take.lua decides checks without: decide() is
-- take.lua. A ban that has not ended denies the request. Of the other checks with a ban, those that
-- have no room count a denial.
-- KEYS     one for each check; then one for each ban
-- ARGV     as of take.lua; then for each ban six numbers, and last how many there are: of which check
--          it is; after within length, as of ban.lua; and how far ahead of now TAT may be, in two parts,
--          if the check has room but for MaxDelay; -1 if no such denial is for MaxDelay
-- Returns  what take.lua returns, where a check that is banned may have room; then for each ban when it
--          ends, 0 if there is none
local bans = ARGV[#ARGV] + 0
local checks, args = #KEYS - bans, #ARGV - 6 * bans
local keys, banned, known = {}, {}, {}

for j = 1, bans do
  local key = KEYS[checks + j]
  keys[j], KEYS[checks + j] = key, nil
  known[key] = { ban_at(key, now, args + 6 * j - 5) }
  banned[j] = known[key][2] > now
  if banned[j] and ARGV[1] == '1' then
    ARGV[1] = '2'
  end
end

local reply = decide()
for j = 1, bans do
  local p = args + 6 * j - 6
  local r, q, spare = 4 * ARGV[p] - 2, p + 1, ARGV[p + 4] + 0
  local since, expires, count, healed = unpack(known[keys[j]])
  local early = reply[r + 1] < now + spare or reply[r + 1] == now + spare and reply[r + 3] <= ARGV[p + 5] + 0
  if ARGV[1] ~= '0' then
    local counts = reply[r] == 0 and expires <= now and ARGV[q] ~= '0' and not (spare >= 0 and early)
    if counts then
      since, expires, count = ban_deny(now, q, since, expires, count)
    end
    if counts or healed then
      ban_write(keys[j], now, q, since, expires, count)
      known[keys[j]] = { since, expires, count, false }
    end
  end
  reply[4 * checks + 1 + j] = (banned[j] or reply[r] == 0) and expires > now and expires or 0
end
reply[4 * checks + 2 + bans] = nil
return reply
