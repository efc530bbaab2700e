-- Corrects a charge as settle.lua does, which is settle(), also if the count is kept elsewhere during a
-- ban by hand.
-- KEYS     the key, and where its count is kept
-- ARGV     as of settle.lua
-- Returns  what settle.lua returns
-- Sent by  settleKeptCall in algorithms/call.go, if settle.lua has met a ban by hand or a foreign value

--@ include begin

--@ include functions

--@ include step

--@ include corrections

--@ include ban

local function settle()
  --@ include settle
end

local key, elsewhere = KEYS[1], KEYS[2]
local kept = held(key)
if kept then
  KEYS[1] = elsewhere
end
KEYS[2] = nil
local reply = settle()
if kept then
  hold(key, elsewhere, 1)
end
return reply
