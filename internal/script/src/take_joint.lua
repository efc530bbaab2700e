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

-- By place in KEYS, the states.
local states = redis.pcall('MGET', unpack(KEYS))
if states.err then
  return redis.error_reply('ALONE ' .. states.err)
end
local missing
for i = 1, #KEYS do
  if not states[i] then
    missing = missing or {}
    missing[#missing + 1], states[i] = KEYS[i], ''
  end
end
if missing then -- MGET says the same of what is no string
  local found = redis.pcall('EXISTS', unpack(missing))
  if type(found) == 'table' then
    return redis.error_reply('ALONE ' .. found.err)
  end
  for i = 1, found > 0 and #KEYS or 0 do
    if states[i] == '' and call('EXISTS', KEYS[i]) > 0 then
      states[i] = '?'
    end
  end
end

-- What is to be written is in states. place has by key where it is there, order these places, and left_of by
-- place what a step says about the deadline. pcall does not share numbers with decide: miniredis' Lua loses
-- those at an error.
local clock, reply = time[1] .. ' ' .. time[2], {}
local place, order, left_of, charges = {}, {}, {}, {}

-- Returns how many keys are to be written, which were n.
local function decide(d, r, n)
  local at, admit, lefts, heals = 2, true, nil, nil
  reply[r] = clock
  --@ joint decide
  if take and (admit or heals) then
    for i = 1, checks do
      local write, left = admit and charges[i] or heals and heals[i], lefts and lefts[i]
      if write then
        local key = KEYS[d + i]
        local to = place[key]
        if not to then
          to, n = d + i, n + 1
          place[key], order[n] = to, to
        end
        states[to] = write
        if left and (left ~= true or not left_of[to]) then
          left_of[to] = left
        end
      end
    end
  end
  return n
end

local n, r = 0, 1
for d = 0, #KEYS - checks, checks do
  local fine, result = pcall(decide, d, r, n)
  if fine then
    n = result
  else
    local costly = ''
    for i = 1, checks do
      local state = states[d + i]
      if #state > 64 or state == '?' then
        costly = costly .. format(' %d', i)
      end
      reply[r + i] = ''
    end
    reply[r] = '!' .. costly .. '!' .. result
  end
  r = r + checks + 1
end

for i = 1, n do
  local to = order[i]
  local key, write, left = KEYS[to], states[to], left_of[to]
  --@ include write
end
return table.concat(reply, '\n')
