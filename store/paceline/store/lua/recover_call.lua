-- recover_call: take a call's claim from a worker that is gone.   -> written | lost      ARGV turn call attempt
local wanted, call, attempt = take(), take(), take_number()
local state, turn, cancel = get('state', 'turn', 'cancel')
local held, owner = claim_of(call)
if state ~= 'in_tools' or turn ~= wanted or has_result(call) or owner == '' or held ~= attempt then
  return 'lost'
end
set_claim(call, attempt, '', 0, '')
if cancel == '1' and not another_runs(call) then
  end_cancelled('in_tools')
end
return 'written'
