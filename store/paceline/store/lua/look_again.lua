-- look_again: look at a run again later.   -> written | lost      ARGV fence turn wait_ms
local fence, wanted, wait_ms = take(), take(), take_number()
if has_moved(fence, wanted) then
  return 'lost'
end
look_at(now + wait_ms)
return 'written'
