
-- Decides all checks of a request, some with a ban, as take.lua, which is take(), does without. A ban
-- that has not ended denies the request. Of the other checks with a ban, those that have no room count
-- a denial.
-- KEYS     one for each check; then two for each ban: its own, and that of a count that it may keep
-- ARGV     as of take.lua; then for each ban six numbers: of which check it is; after within length, as
--          of ban.lua, where after is -1 for a shadow check; and how far ahead of now TAT may be, in two
--          parts, if the check has room but for MaxDelay, -1 if no denial is for that; and behind all 1
--          if a check has met the word "ban" or a foreign value, so that all checks have a ban here, else
--          0; and how many bans there are
-- Returns  what take.lua returns, where a check that is banned may have room, and 2 in place of 1 or 0
--          leaves it undecided, for a foreign value; then for each ban when it ends, negative if it
--          begins with this denial, 0 if there is none
local bans = ARGV[#ARGV] + 0
local met, checks, args = ARGV[#ARGV - 1] == '1', #KEYS - 2 * bans, #ARGV - 6 * bans - 1
local keys, banned, known, kept, foreign = {}, {}, {}, {}, {}

-- Leaves out the check that counts at a key, if an error is about a foreign value. As long as met is 0,
-- such a value may be the word "ban", so the request is sent again.
local function leave_out(key, err)
  local text = type(err) == 'table' and err.err or err
  if not met or not (find(text, 'no state of a limit', 1, true) or find(text, 'WRONGTYPE', 1, true) or find(text, 'perform arithmetic', 1, true)) then
    error(err, 0)
  end
  foreign[key] = true
end

-- What pcall says of a step: as the step, or that the check has room and is not charged.
local function read(key, after, fine, ...)
  if fine and not foreign[key] then
    return ...
  end
  if not fine then
    leave_out(key, ...)
  end
  return after, true, nil, false, false, nil, 0, 0, 0
end

if met then
  for code, step in ipairs(steps) do
    steps[code] = function(key, now, p)
      return read(key, p + sizes[code], pcall(step, key, now, p))
    end
  end
end

for j = 1, bans do
  local key, elsewhere, p = KEYS[checks + 2 * j - 1], KEYS[checks + 2 * j], args + 6 * j - 6
  local of, obeys = ARGV[p] + 0, ARGV[p + 1] ~= '-1'
  local fine, since, ends, count, healed = pcall(ban_at, key, now, p + 1)
  if not fine then
    if obeys then
      leave_out(KEYS[of], since)
    end
    since, ends, count, healed = 0, 0, 0, false
  end
  keys[j], known[key] = key, { since, ends, count, healed }
  banned[j] = obeys and ends > now
  if fine and (met or ends > 0) and held(KEYS[of]) then
    if ends <= now and ARGV[1] ~= '0' then
      release(KEYS[of], elsewhere)
    else
      kept[#kept + 1] = { KEYS[of], elsewhere }
      KEYS[of] = elsewhere
    end
  end
end
for i = #KEYS, checks + 1, -1 do
  KEYS[i] = nil
end
for j = 1, bans do
  if banned[j] and ARGV[1] == '1' then
    ARGV[1] = '2'
  end
end

local reply = take()
if ARGV[1] ~= '0' then
  for _, k in ipairs(kept) do
    hold(k[1], k[2], 1) -- a shadow check is charged there
  end
end
for j = 1, bans do
  local p = args + 6 * j - 6
  local r, q, spare = 4 * ARGV[p] - 2, p + 1, ARGV[p + 4] + 0
  if foreign[KEYS[ARGV[p] + 0]] then
    reply[r] = 2
  end
  local since, expires, count, healed = unpack(known[keys[j]])
  local begins = false
  local early = reply[r + 1] < now + spare or reply[r + 1] == now + spare and reply[r + 3] <= ARGV[p + 5] + 0
  if ARGV[1] ~= '0' then
    local counts = reply[r] == 0 and expires <= now and ARGV[q] + 0 > 0 and not (spare >= 0 and early)
    if counts then
      since, expires, count = ban_deny(now, q, since, expires, count)
      begins = expires > now
    end
    if counts or healed and ARGV[q] ~= '-1' then
      ban_write(keys[j], now, q, since, expires, count)
      known[keys[j]] = { since, expires, count, false }
    end
  end
  local obeys = (banned[j] or reply[r] == 0) and ARGV[q] ~= '-1' and expires > now
  reply[4 * checks + 1 + j] = obeys and (begins and -expires or expires) or 0
end
reply[4 * checks + 2 + bans] = nil
return reply
