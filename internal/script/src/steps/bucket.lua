-- bucket: twin of bucket.At and .Take in internal/step/bucket.go.
-- Key      "w ahead f": TAT is w + f/rate µs, and was that many ms ahead of the clock when it was written
-- ARGV[p]  rate costW costF roomW roomF period
--          the time that the cost takes to refill, and how far ahead TAT may be then, in two parts like TAT
-- A key's deadline is the end of its TAT's part of a grid, so that it stays for a while.
--@ step
local rate, period = ARGV[p] + 0, ARGV[p + 5] + 0
local stored, w, ahead, f = -1, now, 0, 0
was = call('GETRANGE', key, '0', '63')
if was ~= '' then
  local space = #was >= 20 and #was <= 46 and find(was, ' ', 19, true)
  if not space then
    error('no state of a limit at key ' .. key, 0)
  end
  stored, ahead, f = sub(was, 1, 16) + 0, sub(was, 18, space - 1) + 0, sub(was, space + 1) + 0
  w = stored
  local wrote = w - w % 1000 - ahead * 1000 -- when
  if wrote > now + period then
    w = now + (w - wrote) -- now + w may be above 2^53
    stored, ahead, healed = -1, floor(w / 1000) - floor(now / 1000), true
  elseif w < now then
    w, ahead, f = now, 0, 0
  end
  if f >= rate then
    f = rate - 1
  end
end
local w2, f2 = w + ARGV[p + 1], f + ARGV[p + 2]
if f2 >= rate then
  w2, f2 = w2 + 1, f2 - rate
end
local room_w = now + ARGV[p + 3]
fits = w2 < room_w or w2 == room_w and f2 <= ARGV[p + 4] + 0
local grid = period > 60000000 and 60000000 or period > 1000000 and period or 1000000
local part = w2 - w2 % grid
left = stored - stored % grid == part or part + grid + 1000 - now
charge = format('%016d %d %d', w2, floor(w2 / 1000) - floor(now / 1000), f2)
form, a, b, c = '%016d %d %d', w, ahead, f
--@ correct
-- correct: twin of bucket.correct in internal/step/bucket.go.
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

local function corrected(now, p, form, w, ahead, f, w2, f2)
  local grid = max(1000000, min(ARGV[p + 5] + 0, 60000000))
  if w2 ~= w or f2 ~= f then
    ahead = floor(w2 / 1000) - floor(now / 1000)
  end
  return w2 - w2 % grid + grid + 1000 - now, form, w2, ahead, f2
end

local function correct_bucket(_, now, p, q, form, w, ahead, f)
  local rate, dw, df = ARGV[p] + 0, ARGV[q + 3] + 0, ARGV[q + 4] + 0
  local w2, f2 = w, f
  if ARGV[q] + 0 > 0 then
    w2, f2 = w + dw, f + df
    if f2 >= rate then
      w2, f2 = w2 + 1, f2 - rate
    end
    if w2 >= 4503599627370496 then -- as far as the exact range goes
      w2, f2 = 4503599627370496, 0
      if w >= w2 then
        w2, f2 = w, f
      end
    end
  else
    local cw, cf = ARGV[q + 5] - max(now - ARGV[q + 1], 0), ARGV[q + 6] + 0
    if cw < dw or cw == dw and cf < df then
      dw, df = cw, cf
    end
    if dw >= 0 and ARGV[q + 1] + 0 <= now + ARGV[p + 5] then
      w2, f2 = earlier(w, f, dw, df, rate, now)
    end
  end
  return corrected(now, p, form, w, ahead, f, w2, f2)
end
