-- Decides all checks of a request, none with a ban: checks all, then charges all or none.
-- KEYS     one for each check
-- ARGV     1 to charge, 0 to look; then for each check the code of its step, negative for a shadow
--          check, and the step's arguments
-- Returns  a string of lines: the clock's seconds and microseconds, and which checks have no room; then
--          the state of each check before the charge, as it is stored or, of a log, as its step says
-- Sent by  takeCall in algorithms/call.go, for nearly all requests
--
-- It has to be cheap. So the steps stand in the loop itself, since making functions and calling them costs
-- a third of what they compute; codes are compared as text; there are tables only for what is rare; and
-- states of equal length are written in place.

--@ include begin

--@ include steps

--@ inline take
