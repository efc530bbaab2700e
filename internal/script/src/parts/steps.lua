-- The place in ARGV of what is read next.
local at = 2

-- A step reads a key and writes nothing. It knows now in µs, the key, and the place p of its arguments in
-- ARGV. It reads at most 64 bytes of a key: a state that is not ours is known by its length. What of a text
-- has not changed is written as it was read. It says
--   fits       has the check room?
--   left       for how many µs more to remember the state; true keeps the key's deadline; false if the
--              functions below set it; negative if what charges is a member of a set, for so many µs
--   charge     what to write to charge the check: a text, or a function without arguments
--   was        the state as the reply of take.lua has it: as it is stored
--   healed     was the state written by a clock that was more than a period ahead?
--   form       how to write a state: for string.format, or a function of its three numbers
--   a b c      the state as it stands now
--   front before   what its correction needs besides
