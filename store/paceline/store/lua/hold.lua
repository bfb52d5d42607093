-- hold: give the claim back; this turn is due again later.   -> written | lost
-- ARGV fence turn nonce wait_ms why wait timed write
local fence, wanted, nonce, wait_ms = take(), take(), take(), take_number()
local why, wait, timed = take(), take(), take() == '1'
local refusal = refused(fence, wanted, nonce)
if refusal then
  return refusal
end
take_write()
if cancelled_instead('in_turn') then
  return 'written'
end
local hold = now + wait_ms
set('hold', hold, 'why', why, 'wait', wait, 'owner', '', 'until', 0, 'sent', timed and hold or 0)
move('in_turn', 'on_hold')
look_at(timed and hold + look_ms or hold)
return 'written'
