-- Replaces a document, if it still has the version that its publisher has read, and
-- keeps the replaced one.
--
-- KEYS[1]  the document: a line that begins with its version and digest, and the text
-- KEYS[2]  a list of the documents that were replaced, the newest last
-- ARGV[1]  the version that is to be replaced; 0 for none, -1 for something else
-- ARGV[2]  how the new document begins
-- ARGV[3]  the whole of the new document
-- ARGV[4]  how many bytes of the replaced document are kept, less one
-- ARGV[5]  how many documents are kept
--
-- Returns 1 where the document is the new one, and 0 where somebody else was first.
local head = redis.call('GETRANGE', KEYS[1], 0, #ARGV[2] + 32)
if string.sub(head, 1, #ARGV[2]) == ARGV[2] then
  return 1 -- a repetition, whose first answer was lost
end
local version = '0'
if head ~= '' then
  version = string.match(head, '^# ratelimit rules, version ([1-9]%d*), ')
  if not version or #version > 18 then
    version = '-1'
  end
end
if version ~= ARGV[1] then
  return 0
end
if head ~= '' and version ~= '-1' then
  redis.call('RPUSH', KEYS[2], redis.call('GETRANGE', KEYS[1], 0, ARGV[4]))
  redis.call('LTRIM', KEYS[2], -ARGV[5], -1)
end
redis.call('SET', KEYS[1], ARGV[3])
return 1
