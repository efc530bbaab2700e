-- Corrects charges, one after the other: twin of Correction.Settle in internal/step/correction.go. A state
-- that is not ours is an error before anything is written.
-- KEYS     one for each charge
-- ARGV     for each charge how many numbers follow; the code of its step, the step's arguments, and
--          its correction's, the first of which is by how many units the charge is to cost more
-- Returns  now in µs; then for each charge its key's state
-- Sent by  settleCall in algorithms/call.go

--@ include begin

--@ include functions

--@ include step

--@ include corrections

--@ include settle
