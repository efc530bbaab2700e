-- Decides all checks of a request, some with a ban, as take.lua does without. A ban that has not ended
-- denies the request. Of the other checks with a ban, those that have no room count a denial, one for each
-- ban.
-- KEYS     one for each check; then two for each ban: its own, and that of a count that it may keep
-- ARGV     as of take.lua; then for each ban six numbers: of which check it is; after within length, as
--          of a ban below, where after is -1 for a shadow check, and -2 for a check without a ban, which
--          obeys bans by hand only; and how far ahead of now TAT may be, in
--          two parts, if the check has room but for MaxDelay, -1 if no denial is for that; and behind all
--          1 if a check has met the word "ban" or a foreign value, so that all checks have a ban here,
--          else 0; and how many bans there are
-- Returns  what take.lua returns, where a check that is banned may have room, and ? in place of a state
--          leaves its check undecided, for a foreign value; then a line "bans": for each when it ends,
--          negative if it begins with this denial, 0 if there is none
-- Sent by  takeBansCall in algorithms/call.go, if a check has a ban or take.lua has met a ban by hand or a
--          foreign value

--@ include begin

--@ include functions

--@ include ban

local mode, bans = ARGV[1], ARGV[#ARGV] + 0
local met, checks, args = ARGV[#ARGV - 1] == '1', #KEYS - 2 * bans, #ARGV - 6 * bans - 1
local keys, obeyed, banned, known, kept, foreign, found, told = {}, {}, {}, {}, {}, {}, {}, {}

-- Leaves out the check that counts at a key, if an error is about a foreign value. As long as met is 0,
-- such a value may be the word "ban", so the request is sent again.
local function leave_out(key, err)
  local text = type(err) == 'table' and err.err or err
  if not met or not (find(text, 'no state of a limit', 1, true) or find(text, 'WRONGTYPE', 1, true) or find(text, 'perform arithmetic', 1, true)) then
    error(err, 0)
  end
  foreign[key] = true
end

for j = 1, bans do
  local key, elsewhere, p = KEYS[checks + 2 * j - 1], KEYS[checks + 2 * j], args + 6 * j - 6
  local of, after = ARGV[p] + 0, ARGV[p + 1]
  local obeys = after ~= '-1' and (after ~= '-2' or held(KEYS[of]))
  local fine, since, ends, count, healed = pcall(ban_at, key, now, p + 1)
  if not fine then
    if obeys then
      leave_out(KEYS[of], since)
    end
    since, ends, count, healed = 0, 0, 0, false
  end
  keys[j], known[key] = key, { since, ends, count, healed }
  obeyed[j], banned[j] = obeys, obeys and ends > now
  if fine and (met or ends > 0) and held(KEYS[of]) then
    if ends <= now and mode ~= '0' then
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
  if banned[j] and mode == '1' then
    ARGV[1] = '2' -- denies
  end
end

-- This stands behind the pcalls above: at an error that pcall catches, miniredis' Lua takes from functions
-- that are there already what they share, as the place in ARGV.
--@ include step

-- What the step at a key says, or where it failed or is left out, that the check has room and is not charged.
local function read(key, fine, fits, left, charge, was, healed, form, a, b, c)
  if not fine then
    leave_out(key, fits)
  end
  if foreign[key] then
    fits, left, charge, was, healed, a, c = true, false, false, '?', false, 0, 0
  end
  found[key] = { fits, a, c }
  return fits, left, charge, was, healed, form, a, b, c
end

local bare = step
step = function(key, code, p)
  if met then
    return read(key, pcall(bare, key, code, p))
  end
  return read(key, true, bare(key, code, p))
end

local function take()
  --@ include take
end

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
