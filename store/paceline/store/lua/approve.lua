-- approve: a person says whether a call may run.   -> taken | not_wanted | missing
-- ARGV call nonce word entry [result]      word: given | denied | told (denied, and this is its result)
local call, nonce, word, entry = take(), take(), take(), take()
local state, last = get('state', 'last')
if not state then
  return 'missing'
end
if last == nonce then
  return 'taken'
end
if TERMINAL[state] or has_result(call) or permission_of(call) ~= 'wanted' then
  return 'not_wanted'
end
set('last', nonce)
redis.call('RPUSH', ledger_key, entry)
if word == 'denied' then
  set_permission(call, 'denied')
else
  redis.call('HDEL', calls_key, call .. ':approval')
end
if word == 'told' then
  redis.call('HSET', results_key, take_result())
end
go_on_after_person(state, call)
return 'taken'
