-- create: a new run, queued.   -> created | exists | conflict
-- ARGV agent label row digest nonce has_budget fragments…
local agent, label, row, digest, nonce = take(), take(), take(), take(), take()
local has_budget = take() == '1'
local known, last = get('digest', 'last')
if known then
  if last == nonce then
    return 'created'
  end
  return known == digest and 'exists' or 'conflict'
end
set('version', 1, 'state', 'queued', 'turn', 1, 'fence', 0, 'agent', agent, 'label', label, 'row', row, 'digest', digest,
  'submitted', now, 'sent', now, 'last', nonce)
if has_budget then
  set('budget', 1)
end
append_all(log_key)
count('state:queued', 1)
count('active', 1)
redis.call('PERSIST', counts_key)
tally_state('queued', 1, label)
redis.call('EXPIRE', metrics_key, retention_s)
look_at(now + look_ms)
return 'created'
