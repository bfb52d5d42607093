-- finish_call: store a call's result; the first one wins.   -> {stored | last | lost, next once call or ''}
-- ARGV turn call attempt nonce result
local wanted, call, attempt, nonce = take(), take(), take_number(), take()

local state, turn, last, cancel = get('state', 'turn', 'last', 'cancel')
local held, owner, till, claimed_by, began, losses = claim_of(call)

local function answer()
  if cancel == '1' then
    return {'stored', ''}
  end
  local following = is_once(call) and once_due() or ''
  if permission_of(following) then
    following = ''
  end
  return {get('closer') == call and 'last' or 'stored', following}
end

-- The claim keeps the nonce of its result: other calls of the turn may be stored between a result and its repetition.
if last == nonce or claimed_by == nonce then
  return answer()
end
if state ~= 'in_tools' or turn ~= wanted or has_result(call) then
  return {'lost', ''}
end
if owner == '' or held ~= attempt then
  return {'lost', ''}
end
set('last', nonce)
set_claim(call, held, owner, till, nonce, began, losses)
redis.call('HSET', results_key, take_result())
if cancel == '1' then
  if not another_runs(call) then
    end_cancelled('in_tools')
  end
  return answer()
end
if not join_if_complete(call) then
  await_person_if_stuck()
end
return answer()
