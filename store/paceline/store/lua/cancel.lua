-- cancel: end a run, at once or as soon as what is running has stopped.   -> cancelled | requested | ended | missing
local state = get('state')
if not state then
  return 'missing'
end
if TERMINAL[state] then
  return 'ended'
end
if state == 'in_turn' or (state == 'in_tools' and ((get('owner') or '') ~= '' or another_runs(''))) then
  set('cancel', 1)
  return 'requested'
end
end_cancelled(state)
return 'cancelled'
