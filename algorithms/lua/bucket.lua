
-- bucket: twin of bucket.at and .take in bucket.go.
-- Key      "w f": TAT is w + f/rate µs
-- ARGV[p]  rate costW costF fullW fullF believed
--          the time that the cost and the whole bucket take to refill, in two parts like TAT;
--          how far ahead a stored TAT is believed
local function bucket(key, now, p)
  local rate, full_w, full_f = ARGV[p] + 0, ARGV[p + 3] + 0, ARGV[p + 4] + 0
  local w, f, was, mended = now, 0, read(key, 18, 33), false
  if was then
    w, f = sub(was, 1, 16) + 0, sub(was, 18) + 0
    if w < now then
      w, f = now, 0
    elseif w > now + ARGV[p + 5] then
      w, f, mended = now + full_w, full_f, true
    elseif f >= rate then
      f = rate - 1
    end
  end
  local w2, f2 = w + ARGV[p + 1], f + ARGV[p + 2]
  if f2 >= rate then
    w2, f2 = w2 + 1, f2 - rate
  end
  full_w = full_w + now
  local ok = w2 < full_w or w2 == full_w and f2 <= full_f
  return p + 6, ok, mended, remember(w2 - now + 1), '%016d %d', w, f, 0, w2, f2, 0
end

-- correct: twin of bucket.correct in bucket.go.
-- ARGV[q]  delta chargedAt frac deltaW deltaF chargeW chargeF
--          how many units more; when the charge was made, or its slot begins, and by which fraction;
--          the time that delta's units and the charge's take to refill
local function earlier(w, f, dw, df, rate, now)
  w, f = w - dw, f - df
  if f < 0 then
    w, f = w - 1, f + rate
  end
  if w < now then
    w, f = now, 0
  end
  return w, f
end

local function correct_bucket(_, now, p, q, form, w, f)
  local rate, dw, df = ARGV[p] + 0, ARGV[q + 3] + 0, ARGV[q + 4] + 0
  if ARGV[q] + 0 > 0 then
    local most = now + ARGV[p + 5]
    w, f = w + dw, f + df
    if f >= rate then
      w, f = w + 1, f - rate
    end
    if w >= most then
      w, f = most, 0
    end
  else
    local cw, cf = ARGV[q + 5] - max(now - ARGV[q + 1], 0), ARGV[q + 6] + 0
    if cw < dw or cw == dw and cf < df then
      dw, df = cw, cf
    end
    if dw >= 0 then
      w, f = earlier(w, f, dw, df, rate, now)
    end
  end
  return remember(w - now + 1), form, w, f, 0
end
