-- Decides several requests whose checks differ only in their keys and in the ids of in_flight, one after the
-- other, as take.lua does: a later one sees what an earlier one has charged. All is read before anything is written. A request that
-- cannot be decided, as for a ban by hand or a foreign value, is left out and charged nothing.
-- KEYS     for each request one for each check
-- ARGV     as of take.lua for one of them, with '' in place of an id; then the ids of each; and how many checks
--          each has
-- Returns  for each request the lines that take.lua returns; or, if it is left out, a line with "!", the
--          places of the checks whose values cost the others time, and the error behind another "!", and
--          an empty line for each check. An error that begins with ALONE says that nothing was written, and
--          that the requests have to be sent to take.lua
-- Sent by  Transport.join in internal/transport/join.go, for calls of takeCall in algorithms/call.go, but for
--          those with a log
--
-- What take.lua says about its cost holds here, too: the steps stand in the loop, which is one function.

--@ include begin

--@ include steps

local KEYS, codes = KEYS, ARGV
local checks, take, ARGV = codes[#codes] + 0, codes[1] ~= '0', {}
local ids = {} -- their places in ARGV
for i = 1, #codes do
  if codes[i] == '' then
    ids[#ids + 1] = i
  else
    ARGV[i] = codes[i] + 0
  end
end

local sets -- which checks count in a set
if ids[1] then
  sets = {}
  for i = 1, checks do
    local code, p = codes[at], at + 1
    --@ sets
  end
end
local counts = {} -- of the sets that were read, with what is charged here

-- How many are in the set at a key.
local function count(key)
  if not counts[key] then
    counts[key] = call('ZCOUNT', key, format('(%d', now), '+inf')
  end
  return counts[key]
end

-- Each key once, and the place of each in keys and in all that follows.
local keys, place = {}, {}
for i = 1, #KEYS do
  local key = KEYS[i]
  if not place[key] and not (sets and sets[(i - 1) % checks + 1]) then
    keys[#keys + 1] = key
    place[key] = #keys
  end
end

local states = keys[1] and redis.pcall('MGET', unpack(keys)) or {} -- no keys where all are sets
if states.err then
  return redis.error_reply('ALONE ' .. states.err)
end
local missing
for at = 1, #keys do
  if not states[at] then
    missing = missing or {}
    missing[#missing + 1], states[at] = keys[at], ''
  end
end
if missing then -- MGET says the same of what is no string
  local found = redis.pcall('EXISTS', unpack(missing))
  if type(found) == 'table' then
    return redis.error_reply('ALONE ' .. found.err)
  end
  for at = 1, found > 0 and #keys or 0 do
    if states[at] == '' and call('EXISTS', keys[at]) > 0 then
      states[at] = '?'
    end
  end
end

-- states has what is to be written where changed is true; left_of what the step said about the deadline.
local changed, left_of, charges, reply = {}, {}, {}, {}
local clock = time[1] .. ' ' .. time[2]

local function decide(d, r)
  local at, admit, lefts, heals = 2, true, nil, nil
  reply[r] = clock
  --@ joint decide
  if take and (admit or heals) then
    for i = 1, checks do
      local write, left = admit and charges[i] or heals and heals[i], lefts and lefts[i]
      if write then
        local key = KEYS[d + i]
        local to = place[key]
        if not to then -- a set
          to = #keys + 1
          keys[to], states[to], changed[to], left_of[to] = key, write, true, left
          counts[key] = counts[key] + (left and 1 or 0)
        else
          states[to], changed[to] = write, true
          if left and (left ~= true or not left_of[to]) then
            left_of[to] = left
          end
        end
      end
    end
  end
end

local r, next_id = 1, #codes - #KEYS / checks * #ids
for d = 0, #KEYS - checks, checks do
  for _, i in ipairs(ids) do
    ARGV[i], next_id = codes[next_id], next_id + 1
  end
  local fine, err = pcall(decide, d, r)
  if not fine then
    local costly = ''
    for i = 1, checks do
      local state = states[place[KEYS[d + i]]] or ''
      if #state > 64 or state == '?' then
        costly = costly .. format(' %d', i)
      end
      reply[r + i] = ''
    end
    reply[r] = '!' .. costly .. '!' .. (type(err) == 'table' and err.err or err)
  end
  r = r + checks + 1
end

for to, key in ipairs(keys) do
  if changed[to] then
    local write, left = states[to], left_of[to]
    --@ include write
  end
end
return table.concat(reply, '\n')
