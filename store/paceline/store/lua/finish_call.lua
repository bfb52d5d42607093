-- finish_call: store a call's result; the first one wins.   -> {stored | last | lost, next once call or ''}
-- ARGV turn call attempt nonce result
local wanted, call, attempt, nonce = take(), take(), take_number(), take()

local function answer()
  local once = ' ' .. (get('once') or '') .. ' '
  local following = once:find(' ' .. call .. ' ', 1, true) and once_due() or ''
  return {get('state') == 'joining' and 'last' or 'stored', following}
end

local state, turn, last, cancel = get('state', 'turn', 'last', 'cancel')
if last == nonce then
  return answer()
end
if state ~= 'in_tools' or turn ~= wanted or has_result(call) then
  return {'lost', ''}
end
local held, owner = claim_of(call)
if owner == '' or held ~= attempt then
  return {'lost', ''}
end
set('last', nonce)
redis.call('HSET', results_key, take_result())
if cancel == '1' then
  if not another_runs(call) then
    end_cancelled('in_tools')
  end
  return {'stored', ''}
end
if redis.call('HLEN', results_key) == tonumber(get('open')) then
  set('sent', now, 'owner', '', 'until', 0)
  move('in_tools', 'joining')
  look_at(now + look_ms)
end
return answer()
