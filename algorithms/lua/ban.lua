
-- ban: twin of banRule in ban.go.
-- Key      "since until count": when the first of the denials came, or the ban began; when it ends; the denials
-- ARGV[q]  after within length
--          how many denials lead to a ban, 0 if they do not count; in how many µs; and how long it lasts
local function ban_at(key, now, q)
  local was, within = read(key, 35, 50), ARGV[q + 1] + 0
  if not was then
    return 0, 0, 0, false
  end
  local since, expires, count = sub(was, 1, 16) + 0, sub(was, 18, 33) + 0, sub(was, 35) + 0
  if since > now + within then
    return now, now + max(expires - since, 0), count, true
  end
  return since, expires, count, false
end

local function ban_deny(now, q, since, expires, count)
  if count == 0 or now - since >= ARGV[q + 1] + 0 then
    since, expires, count = now, 0, 0
  end
  count = count + 1
  if count >= ARGV[q] + 0 then
    since, expires, count = now, now + ARGV[q + 2], 0
  end
  return since, expires, count
end

local function ban_write(key, now, q, since, expires, count)
  local forgotten = expires
  if count > 0 then
    forgotten = max(expires, since + ARGV[q + 1])
  end
  call('PSETEX', key, format('%d', remember(forgotten - now)), format('%016d %016d %d', since, expires, count))
end
