if left == nil and #write > 17 then -- no number, of which SETRANGE would make a string
  call('SETRANGE', key, '0', write)
elseif left == nil or left == true then
  call('SET', key, write, 'KEEPTTL')
elseif left and left < 0 then
  if write % 16 < 1 then -- what has lapsed does not count, and only takes room
    call('ZREMRANGEBYSCORE', key, '-inf', format('%d', now))
  end
  call('ZADD', key, format('%d', now - left), write)
  call('PEXPIRE', key, format('%d', floor(-left / 1000) + 1))
elseif left then
  call('PSETEX', key, format('%d', floor((left + 1999) / 1000)), write)
else
  write()
end
