-- Looks at bans, heals them, counts denials, or bans and lifts by hand, one after the other.
-- KEYS     one for each ban; by hand, each followed by that of the count and that where it is kept
-- ARGV     'look', 'heal', 'deny', 'ban' or 'lift'; then for each ban after within length, as of a ban below
-- Returns  now in µs; then for each when it ends, negative if it begins with this denial, 0 if there is none
-- Sent by  bansCall in algorithms/call.go: by hand, and where keys are sharded

-- Numbers go to redis.call as text: Lua's own conversion keeps 14 digits, and is slow. x + 0 is
-- tonumber(x) at half the cost.
local call, format, find, sub, floor = redis.call, string.format, string.find, string.sub, math.floor

-- The clock is read once for all that a script does.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]

-- What the scripts share that call functions; take.lua has none.
local max, min = math.max, math.min

-- The ms for which to remember what counts for some µs more.
local function remember(us)
  return floor((max(us, 0) + 1999) / 1000)
end

-- ban: twin of Ban in internal/step/denials.go.
-- Key      "since until count": when the first of the denials came, or the ban began; when the denials are
--          forgotten, or the ban ends; the denials, 0 during a ban
-- ARGV[q]  after within length
--          how many denials lead to a ban, 0 if they do not count; in how many µs; and how long it lasts
local function ban_at(key, now, q)
  local was, within = call('GETRANGE', key, '0', '63'), ARGV[q + 1] + 0
  if was == '' then
    return 0, 0, 0, false
  end
  if #was < 35 or #was > 50 then
    error('no state of a limit at key ' .. key, 0)
  end
  local since, expires, count = sub(was, 1, 16) + 0, sub(was, 18, 33) + 0, sub(was, 35) + 0
  if count > 0 then
    if expires <= now then -- the key is there for some ms more
      return 0, 0, 0, false
    end
    expires = 0
  end
  if since > now + within then
    return now, count > 0 and 0 or now + max(expires - since, 0), count, true
  end
  return since, expires, count, false
end

local function ban_deny(now, q, since, expires, count)
  if count == 0 or now - since >= ARGV[q + 1] + 0 then
    since, expires, count = now, 0, 0
  end
  count = count + 1
  if count >= ARGV[q] + 0 then
    since, expires, count = now, now + ARGV[q + 2], 0
  end
  return since, expires, count
end

local function ban_write(key, now, q, since, expires, count)
  if count > 0 then
    expires = max(expires, since + ARGV[q + 1])
  end
  local ms = remember(expires - now)
  call('PSETEX', key, format('%d', ms), format('%016d %016d %d', since, expires, count))
  return ms
end

-- A check without a Ban does not read this key. So a ban by hand puts the word "ban" in the place of
-- the count, which no step takes for a state, and keeps the count at another key until it has ended.
-- Is it there?
local function held(key)
  return redis.pcall('GETRANGE', key, '0', '3') == 'ban'
end

local function hold(key, kept, ms)
  if not held(key) then
    call('DEL', kept)
    redis.pcall('RENAME', key, kept) -- an error if there is none
    call('PSETEX', key, format('%d', max(ms, call('PTTL', kept) + 1)), 'ban') -- as long as both
    return
  end
  ms = max(ms, call('PTTL', kept) + 1)
  if ms > call('PTTL', key) then
    call('PEXPIRE', key, format('%d', ms))
  end
end

local function release(key, kept)
  call('DEL', key)
  redis.pcall('RENAME', kept, key)
end

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
