if left == nil and #write > 17 then -- no number, of which SETRANGE would make a string
  call('SETRANGE', key, '0', write)
elseif left == nil or left == true then
  call('SET', key, write, 'KEEPTTL')
elseif left then
  call('PSETEX', key, format('%d', floor((left + 1999) / 1000)), write)
else
  write()
end
