-- queue: twin of queue.Take in internal/step/queue.go. Its key, its arguments and its step are the bucket's.
--@ step bucket
--@ correct
-- correct: twin of queue.correct in internal/step/queue.go.
-- ARGV[q]  as of the bucket
local function correct_queue(key, now, p, q, form, w, ahead, f)
  local rate = ARGV[p] + 0
  if ARGV[q] + 0 > 0 then
    return correct_bucket(key, now, p, q, form, w, ahead, f)
  end
  local begin_w, begin_f = earlier(w, f, ARGV[q + 5], ARGV[q + 6], rate, 0)
  if begin_f > 0 then
    begin_w = begin_w + 1
  end
  local w2, f2 = w, f
  if begin_w == ARGV[q + 1] + 0 and begin_f == ARGV[q + 2] + 0 then
    w2, f2 = earlier(w, f, ARGV[q + 3], ARGV[q + 4], rate, now)
  end
  return corrected(now, p, form, w, ahead, f, w2, f2)
end
