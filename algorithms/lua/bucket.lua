-- bucket: twin of bucket.at and .take in bucket.go.
-- State    w f _    TAT is w + f/rate µs
-- ARGV[p]  rate costW costF fullW fullF believed
--          the time that the cost and the whole bucket take to refill, in two parts like TAT;
--          how far ahead a stored TAT is believed
-- Returns  as every step: room?, mended?, µs to remember it, the state before, the state after
local function bucket(w, f, _, now, p)
  local rate, full_w, full_f = ARGV[p] + 0, ARGV[p + 3] + 0, ARGV[p + 4] + 0
  local mended = false
  if w < now then
    w, f = now, 0
  elseif w > now + ARGV[p + 5] then
    w, f, mended = now + full_w, full_f, true
  elseif f >= rate then
    f = rate - 1
  end
  local w2, f2 = w + ARGV[p + 1], f + ARGV[p + 2]
  if f2 >= rate then
    w2, f2 = w2 + 1, f2 - rate
  end
  full_w = full_w + now
  return w2 < full_w or w2 == full_w and f2 <= full_f, mended, w2 - now + 1, w, f, 0, w2, f2, 0
end
