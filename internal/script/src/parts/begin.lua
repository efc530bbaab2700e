-- What the steps share. The steps follow, in the order of the table in algorithm.go.
--
-- A step is a function of a key, of now in µs, and of the place p of its arguments in ARGV. It reads
-- the key, writes nothing, and returns
--   p          the place behind its arguments
--   ok         has the check room?
--   left       for how many µs more to remember the state; true keeps the key's deadline; false if the
--              functions below set it
--   charged    what to write to charge the check: a text, or a function without arguments
-- and, on a line of its own, what is rarely needed:
--   healed     was the state written by a clock that was more than a period ahead?
--   form       how to write a state: for string.format, or a function of its three numbers
--   a b c      the state as it stands now
-- Numbers go to redis.call as text: Lua's own conversion keeps 14 digits, and is slow. x + 0 is
-- tonumber(x) at half the cost. A step reads at most 64 bytes of a key: a state that is not ours is known
-- by its length. What of a text has not changed is written as it was read.
local call, format, find, sub, floor = redis.call, string.format, string.find, string.sub, math.floor

-- The clock is read once for all that a script does.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
