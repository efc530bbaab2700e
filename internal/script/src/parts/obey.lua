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
