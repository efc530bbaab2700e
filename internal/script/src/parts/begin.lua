-- Numbers go to redis.call as text: Lua's own conversion keeps 14 digits, and is slow. x + 0 is
-- tonumber(x) at half the cost.
local call, format, find, sub, floor = redis.call, string.format, string.find, string.sub, math.floor

-- The clock is read once for all that a script does.
local time = call('TIME')
local now = time[1] * 1000000 + time[2]
