-- begin_call: claim a call; the intent is on record before the tool starts.
-- -> {ok, spec, attempt, agent, doubt, label}
-- -> {missing | stale | done | busy | waits | not_approved | in_doubt | cancelled}
-- ARGV turn call owner nonce longest_ms
local wanted, call, mine, nonce, longest_ms = take(), take(), take(), take(), take_number()
local state, turn, cancel, agent, sent, label = get('state', 'turn', 'cancel', 'agent', 'sent', 'label')
if not state then
  return {'missing'}
end
local spec = redis.call('HGET', calls_key, call)
if state ~= 'in_tools' or turn ~= wanted or not spec then
  return {'stale'}
end
if has_result(call) then
  return {'done'}
end
local attempt, owner, _, held_by, _, losses = claim_of(call)
local doubt = redis.call('HGET', calls_key, call .. ':doubt') or ''
if owner ~= '' then
  return held_by == nonce and {'ok', spec, attempt, agent, doubt, label or 'other'} or {'busy'}
end
if cancel == '1' then
  return {'cancelled'}
end
if is_once(call) and once_due() ~= call then
  return {'waits'}
end
if permission_of(call) then
  return {'not_approved'}
end
if doubt_of(call) == 'person' then
  return {'in_doubt'}
end
local timeout_ms = math.floor((cjson.decode(spec).timeout_s or 0) * 1000)
if attempt == 0 and not is_once(call) then
  observe_wait('paceline.tools', tonumber(sent))
end
set_claim(call, attempt + 1, mine, now + longest_ms + timeout_ms, nonce, now, losses)
return {'ok', spec, attempt + 1, agent, doubt, label or 'other'}
