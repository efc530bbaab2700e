-- Decides several requests whose checks differ in their keys only, one after the other, as take.lua does: a
-- later one sees what an earlier one has charged. All is read before anything is written. A request that
-- cannot be decided, as for a ban by hand or a foreign value, is left out and charged nothing.
-- KEYS     for each request one for each check
-- ARGV     as of take.lua for one of them; then how many checks each has
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
for i = 1, #codes do
  ARGV[i] = codes[i] + 0
end

-- Each key once, and the place of each in keys and in all that follows.
local keys, place = {}, {}
for i = 1, #KEYS do
  local key = KEYS[i]
  if not place[key] then
    keys[#keys + 1] = key
    place[key] = #keys
  end
end

local states = redis.pcall('MGET', unpack(keys))
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
        local to = place[KEYS[d + i]]
        states[to], changed[to] = write, true
        if left and (left ~= true or not left_of[to]) then
          left_of[to] = left
        end
      end
    end
  end
end

local r = 1
for d = 0, #KEYS - checks, checks do
  local fine, err = pcall(decide, d, r)
  if not fine then
    local costly = ''
    for i = 1, checks do
      local state = states[place[KEYS[d + i]]]
      if #state > 64 or state == '?' then
        costly = costly .. format(' %d', i)
      end
      reply[r + i] = ''
    end
    reply[r] = '!' .. costly .. '!' .. err
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
