-- cancel: end a run, at once or as soon as what is running has stopped.   -> cancelled | requested | ended | missing
-- ARGV nonce
local nonce = take()
local state, last = get('state', 'last')
if not state then
  return 'missing'
end
if last == nonce then
  return TERMINAL[state] and 'cancelled' or 'requested'
end
if TERMINAL[state] then
  return 'ended'
end
set('last', nonce)
if state == 'in_turn' or (state == 'in_tools' and ((get('owner') or '') ~= '' or another_runs(''))) then
  set('cancel', 1)
  return 'requested'
end
end_cancelled(state)
look_at(now)  -- no worker knows of this end: the sweeper tells it
return 'cancelled'
