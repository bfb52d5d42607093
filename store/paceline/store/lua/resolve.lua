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
if TERMINAL[state] or has_result(call) or doubt_of(call) ~= 'person' then
  return 'not_in_doubt'
end
set('last', nonce)
redis.call('HDEL', calls_key, call .. ':doubt')
if with_result then
  redis.call('HSET', results_key, take_result())
else
  redis.call('RPUSH', ledger_key, take())
end
go_on_after_person(state, call)
return 'resolved'
