-- Decides all checks of a request, some with a ban, as take.lua does without. A ban that has not ended
-- denies the request. Of the other checks with a ban, those that have no room count a denial, one for each
-- ban.
-- KEYS     one for each check; then two for each ban: its own, and that of a count that it may keep
-- ARGV     as of take.lua; then for each ban six numbers: of which check it is; after within length, as
--          of a ban below, where after is -1 for a shadow check, and -2 for a check without a ban, which
--          obeys bans by hand only; and how far ahead of now TAT may be, in
--          two parts, if the check has room but for MaxDelay, -1 if no denial is for that; and behind all
--          1 if a check has met the word "ban" or a foreign value, so that all checks have a ban here,
--          else 0; and how many bans there are
-- Returns  what take.lua returns, where a check that is banned may have room, and ? in place of a state
--          leaves its check undecided, for a foreign value; then a line "bans": for each when it ends,
--          negative if it begins with this denial, 0 if there is none
-- Sent by  takeBansCall in algorithms/call.go, if a check has a ban or take.lua has met a ban by hand or a
--          foreign value

--@ include begin

--@ include functions

--@ include ban

--@ include obey

--@ include count_denials
