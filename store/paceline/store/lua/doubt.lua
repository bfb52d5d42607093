-- doubt: take the claim of a call that may have taken effect; somebody is asked, and it is not run again.
-- -> written | lost      ARGV turn call attempt nonce lost asked entry
local wanted, call, attempt, nonce, lost = take(), take(), take_number(), take(), take_number()
local asked, entry = take(), take()
local state, turn, cancel, last = get('state', 'turn', 'cancel', 'last')
local _, worker, since, doubted_by = doubt_of(call)
if last == nonce or doubted_by == nonce then
  return 'written'
end
local held, owner, _, _, began, losses = claim_of(call)
if state ~= 'in_tools' or turn ~= wanted or has_result(call) or owner == '' or held ~= attempt then
  return 'lost'
end
-- Whoever asked the tool in vain is not who may have run it.
set('last', nonce)
if lost == 1 then
  tally('agent_sweeper_recoveries_total|doubt', 1)
end
set_doubt(call, asked, worker or owner, since or began, nonce)
set_claim(call, attempt, '', 0, '', began, losses + lost)
redis.call('RPUSH', ledger_key, entry)
if asked == 'person' then
  set('asked', turn)
end
if cancel == '1' then
  if not another_runs(call) then
    end_cancelled('in_tools')
  end
else
  await_person_if_stuck()
end
return 'written'
