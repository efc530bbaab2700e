-- Tells what runs: of in_flight, and the instances that use a namespace. What Redis has forgotten is counted again.
-- KEYS     as of in_flight in common.lua
-- ARGV     for each key the lease in µs, and what is told
-- Returns  how many run in all, -1 where the key has a foreign value; or why some was not written
-- Sent by  store.Tell in algorithms/redis_in_flight.go and store.Beat in redis_store.go
local counts, refused = {}, nil
for i = 1, #KEYS do
  local fine, all, write = pcall(running, KEYS[i], ARGV[2 * i - 1] + 0, ARGV[2 * i])
  if fine and write then
    fine, write = pcall(write, 0)
  end
  local why = not fine and (write or all)
  why = type(why) == 'table' and why.err or why
  if not why then
    counts[i] = all
  elseif find(why, 'WRONGTYPE', 1, true) or find(why, 'arithmetic', 1, true) then
    counts[i] = -1
  else -- no memory, or a replica: to be told again
    refused = why
  end
end
return refused and redis.error_reply(refused) or counts
