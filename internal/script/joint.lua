-- Decides several requests whose checks differ only in their keys and in what in_flight tells, one after the
-- other, as take.lua does: a later one sees what an earlier one has charged. All texts are read before anything is
-- written. A request that cannot be decided, as for a foreign value, is left out and charged
-- nothing.
-- KEYS     for each request one for each check
-- ARGV     as of take.lua for one of them, with '' in place of what in_flight tells; then that of each; and how many checks
--          each has
-- Returns  for each request the lines that take.lua returns; or, if it is left out, a line with "!", the
--          places of the checks whose values cost the others time, and the error behind another "!", and
--          an empty line for each check. An error that begins with ALONE says that nothing was written, and
--          that the requests have to be sent to take.lua
-- Sent by  Transport.join in internal/transport/join.go, for calls of takeCall in algorithms/call.go, but for
--          those with a log
local checks, take, ids = ARGV[#ARGV] + 0, ARGV[1] ~= '0', {} -- ids are places in ARGV
for i = 1, #ARGV do
  if ARGV[i] == '' then
    ids[#ids + 1] = i
  end
end
local next_id = #ARGV - #KEYS / checks * #ids
for i = 2, next_id - 1 do
  if ARGV[i] ~= '' then
    ARGV[i] = ARGV[i] + 0 -- once for all requests
  end
end

local sets = {} -- which checks have a hash, of in_flight
if ids[1] then
  at = 2
  for i = 1, checks do
    local kind = math.abs(ARGV[at])
    sets[i] = kind == 6
    at = at + 1 + ({ 3, 3, 3, 6, 6, 3, 10 })[kind] -- how many arguments it has
  end
end

-- Each text is read once.
local keys = {} -- of texts
for i = 1, #KEYS do
  local key = KEYS[i]
  if not states[key] and not sets[(i - 1) % checks + 1] then
    keys[#keys + 1], states[key] = key, ''
  end
end
local found = keys[1] and redis.pcall('MGET', unpack(keys)) or {}
if found.err then
  return redis.error_reply('ALONE ' .. found.err)
end
local missing = {}
for i = 1, #keys do
  if found[i] then
    states[keys[i]] = found[i]
  else
    missing[#missing + 1] = keys[i]
  end
end
if missing[1] then -- MGET says the same of what is no string
  local exist = redis.pcall('EXISTS', unpack(missing))
  if type(exist) == 'table' then
    return redis.error_reply('ALONE ' .. exist.err)
  end
  for i = 1, exist > 0 and #missing or 0 do
    if call('EXISTS', missing[i]) > 0 then
      states[missing[i]] = '?'
    end
  end
end

-- At which keys a text is to be written, as it is in states then, with what the steps have said about the
-- deadline.
local deadlines = {}
local reply, charges, r = {}, {}, 1
for d = 0, #KEYS - checks, checks do
  for i = 1, #ids do
    ARGV[ids[i]] = ARGV[next_id]
    next_id = next_id + 1
  end
  reply[r] = time[1] .. ' ' .. time[2]
  -- After an error, miniredis' Lua no longer shares at between decide and this file, which reads it no more.
  local fine, admit, heals, lefts = pcall(decide, d, checks, reply, r, charges)
  if not fine then
    local costly = ''
    for i = 1, checks do
      local state = states[KEYS[d + i]]
      if state == '?' or type(state) == 'string' and #state > 64 then
        costly = costly .. format(' %d', i)
      end
      reply[r + i] = ''
    end
    reply[r] = '!' .. costly .. '!' .. (type(admit) == 'table' and admit.err or admit)
  elseif take and (admit or heals) then
    for i = 1, checks do
      local key, state, left = KEYS[d + i], admit and charges[i] or heals and heals[i], lefts and lefts[i]
      if state and sets[i] then
        state() -- for the next request to see
      elseif state then
        states[key] = state
        if left ~= true or not deadlines[key] then
          deadlines[key] = left or deadlines[key] or false
        end
      end
    end
  end
  r = r + checks + 1
end
for i = 1, #keys do
  local key = keys[i]
  local state, left = states[key], deadlines[key]
  if left == nil then
    -- nothing to write
  elseif not left and #state > 17 then -- as in take.lua
    call('SETRANGE', key, '0', state)
  elseif not left or left == true then
    call('SET', key, state, 'KEEPTTL')
  else
    call('PSETEX', key, format('%d', floor((left + 1999) / 1000)), state)
  end
end
return table.concat(reply, '\n')
