-- go_on: give the claim back; the next turn is due, or this one again.   -> written | lost
-- ARGV fence turn nonce advance write
local fence, wanted, nonce, advance = take(), take(), take(), take_number()
local refusal = refused(fence, wanted, nonce)
if refusal then
  return refusal
end
take_write()
if not cancelled_instead('in_turn') then
  due_again('in_turn', get('turn') + advance)
end
return 'written'
