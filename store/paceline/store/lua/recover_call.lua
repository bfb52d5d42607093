-- recover_call: take a call's claim from a worker that is gone, or gives it back.   -> written | lost
-- ARGV turn call attempt nonce lost
local wanted, call, attempt, nonce, lost = take(), take(), take_number(), take(), take_number()
local state, turn, cancel, last = get('state', 'turn', 'cancel', 'last')
if last == nonce then
  return 'written'
end
local held, owner, _, _, began, losses = claim_of(call)
if state ~= 'in_tools' or turn ~= wanted or has_result(call) or owner == '' or held ~= attempt then
  return 'lost'
end
set('last', nonce)
if lost == 1 then
  tally('agent_sweeper_recoveries_total|call', 1)
end
set_claim(call, attempt, '', 0, '', began, losses + lost)
if cancel == '1' and not another_runs(call) then
  end_cancelled('in_tools')
end
return 'written'
