-- resolve: a person says what became of a call in doubt.   -> resolved | not_in_doubt | missing
-- ARGV call nonce has_result {entry | result}
local call, nonce, with_result = take(), take(), take() == '1'
local state, last = get('state', 'last')
if not state then
  return 'missing'
end
if last == nonce then
  return 'resolved'
end
if (state ~= 'in_tools' and state ~= 'awaiting_decision') or has_result(call) or doubt_of(call) ~= 'person' then
  return 'not_in_doubt'
end
-- No message is under way: whatever is due now, the sweeper sends.
set('last', nonce, 'sent', 0)
redis.call('HDEL', calls_key, call .. ':doubt')
if with_result then
  redis.call('HSET', results_key, take_result())
else
  redis.call('RPUSH', ledger_key, take())
end
if state == 'awaiting_decision' then
  -- A sweeper that has just seen it wait would put the next look far off: it has seen another run than this.
  redis.call('HINCRBY', run_key, 'fence', 1)
  move('awaiting_decision', 'in_tools')
end
if join_if_complete(call) then
  set('sent', 0)
end
look_at(now)
return 'resolved'
