-- send_again: the message for what is due goes out again, sent by one of those who examined the run.   -> written | lost
-- ARGV fence turn nonce wait_ms sent      sent: when it had gone out last, as it was examined
local fence, wanted, nonce, wait_ms, examined = take(), take(), take(), take_number(), take_number()
local state, owner, sent, resent = get('state', 'owner', 'sent', 'resent')
if resent == nonce then
  return 'written'
end
if has_moved(fence, wanted) or tonumber(sent) ~= examined then
  return 'lost'
end
set('sent', now, 'resent', nonce)
tally('agent_sweeper_recoveries_total|message', 1)
-- Whoever ran the calls inline is given up: others are asked to run them.
if state == 'in_tools' and (owner or '') ~= '' then
  redis.call('HINCRBY', run_key, 'fence', 1)
  set('owner', '', 'until', 0)
end
look_at(now + wait_ms)
return 'written'
