-- recover_call: take a call's claim from a worker that is gone.   -> written | lost      ARGV turn call attempt nonce
local wanted, call, attempt, nonce = take(), take(), take_number(), take()
local state, turn, cancel, last = get('state', 'turn', 'cancel', 'last')
if last == nonce then
  return 'written'
end
local held, owner, _, _, began = claim_of(call)
if state ~= 'in_tools' or turn ~= wanted or has_result(call) or owner == '' or held ~= attempt then
  return 'lost'
end
set('last', nonce)
set_claim(call, attempt, '', 0, '', began)
if cancel == '1' and not another_runs(call) then
  end_cancelled('in_tools')
end
return 'written'
