-- Corrects charges as settle.lua does, which is settle(), also where a count is kept elsewhere during a
-- ban by hand.
-- KEYS     as of settle.lua; then for each where its count is kept
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

local charges, kept = #KEYS / 2, {}
for i = 1, charges do
  local key, elsewhere = KEYS[i], KEYS[charges + i]
  if held(key) then
    kept[#kept + 1] = { key, elsewhere }
    KEYS[i] = elsewhere
  end
end
for i = 2 * charges, charges + 1, -1 do
  KEYS[i] = nil
end
local reply = settle()
for _, k in ipairs(kept) do
  hold(k[1], k[2], 1)
end
return reply
