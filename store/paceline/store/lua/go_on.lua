-- go_on: give the claim back; the next turn is due, or this one again.   -> written | lost
-- ARGV fence nonce advance write
local fence, nonce, advance = take(), take(), take_number()
local refusal = refused(fence, nonce)
if refusal then
  return refusal
end
take_write()
if not cancelled_instead('in_turn') then
  due_again('in_turn', get('turn') + advance)
end
return 'written'
