-- What the steps share. The steps follow, in the order of the table in algorithm.go.
--
-- A step is a function of a key, of now in µs, and of the place p of its arguments in ARGV. It reads
-- the key, writes nothing, and returns
--   p          the place behind its arguments
--   ok         has the check room?
--   healed     was the state written by a clock that was more than a period ahead?
--   ttl        for how many ms to remember the state; true keeps the key's deadline
--   form       how to write the state: for string.format, or a function of its three numbers
--   a b c      the state as it stands now, then as it is with the charge
-- Numbers go to redis.call as text: Lua's own conversion keeps 14 digits, and is slow. x + 0 is
-- tonumber(x) at half the cost.
local call, format, find, sub = redis.call, string.format, string.find, string.sub
local floor, max, min = math.floor, math.max, math.min

-- Ends the script, which has written nothing yet.
local function foreign(key)
  error('no state of a limit at key ' .. key, 0)
end

-- A state that is not ours is known by its length, and not read any further.
local function read(key, least, most)
  local was = call('GETRANGE', key, '0', '63')
  if was == '' then
    return nil
  end
  if #was < least or #was > most then
    foreign(key)
  end
  return was
end

-- The ms for which to remember what counts for some µs more.
local function remember(us)
  return floor((max(us, 0) + 1999) / 1000)
end

-- The clock is read once for all that a script does.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
