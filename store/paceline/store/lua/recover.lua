-- recover: take a turn's claim from a worker that is gone; the turn is due again.   -> written | lost
-- ARGV fence turn nonce write
local fence, wanted, nonce = take(), take(), take()
local refusal = refused(fence, wanted, nonce)
if refusal then
  return refusal
end
take_write()
redis.call('HINCRBY', run_key, 'fence', 1)
if not cancelled_instead('in_turn') then
  due_again('in_turn', get('turn'))
end
return 'written'
