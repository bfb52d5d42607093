-- hold: give the claim back; this turn is due again later.   -> written | lost
-- ARGV fence turn nonce wait_ms why write
local fence, wanted, nonce, wait_ms, why = take(), take(), take(), take_number(), take()
local refusal = refused(fence, wanted, nonce)
if refusal then
  return refusal
end
take_write()
if cancelled_instead('in_turn') then
  return 'written'
end
local hold = now + wait_ms
set('hold', hold, 'why', why, 'owner', '', 'until', 0, 'sent', hold)
move('in_turn', 'on_hold')
look_at(hold)
return 'written'
