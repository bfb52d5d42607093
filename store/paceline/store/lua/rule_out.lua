-- rule_out: a call that was in doubt has not taken effect, says its tool; anybody may begin it.   -> written | lost
-- ARGV turn call attempt nonce entry
local wanted, call, attempt, nonce, entry = take(), take(), take_number(), take(), take()
local state, turn, cancel, last = get('state', 'turn', 'cancel', 'last')
if last == nonce then
  return 'written'
end
local held, owner, _, _, began, losses = claim_of(call)
if state ~= 'in_tools' or turn ~= wanted or has_result(call) or owner == '' or held ~= attempt or not doubt_of(call) then
  return 'lost'
end
set('last', nonce)
redis.call('HDEL', calls_key, call .. ':doubt')
set_claim(call, attempt, '', 0, '', began, losses)
redis.call('RPUSH', ledger_key, entry)
if cancel == '1' and not another_runs(call) then
  end_cancelled('in_tools')
end
return 'written'
