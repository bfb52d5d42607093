-- Shared by every script: the keys by name, arguments one after another, and the few things that all transitions do.
local run_key, due_key, counts_key, log_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local ledger_key, seen_key, calls_key, results_key, whole_key = KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local dead_key, metrics_key = KEYS[10], KEYS[11]

local taken = 0
local function take()
  taken = taken + 1
  return ARGV[taken]
end

local function take_number()
  return tonumber(take())
end

-- The first arguments of every script: the time (empty: the server's), the run's id, when to look at a run again that
-- moved and then does nothing, and how long a run is kept after its end.
local now = take_number()
if not now then
  local time = redis.call('TIME')
  now = time[1] * 1000 + math.floor(time[2] / 1000)
end
local run_id = take()
local look_ms = take_number()
local retention_s = take()

local function get(...)
  return unpack(redis.call('HMGET', run_key, ...))
end

local function set(...)
  redis.call('HSET', run_key, ...)
end

local function look_at(ms)
  redis.call('ZADD', due_key, ms, run_id)
end

local function count(field, by)
  if by ~= 0 then
    redis.call('HINCRBY', counts_key, field, by)
  end
end

local TERMINAL = {succeeded = true, stopped = true, failed = true, cancelled = true}

-- Metrics: core/paceline/core/metrics.py names them, and `bounds_of` has its buckets. A write brings what is counted of
-- its turn or call; counted here is what no single write knows.
local function tally(field, by)
  redis.call('HINCRBY', metrics_key, field, by)
end

local function tally_all()
  for _ = 1, take_number() do
    tally(take(), take())
  end
end

local function observe(metric, labels, value)
  local bucket = 'inf'
  for _, bound in ipairs(bounds_of(metric)) do
    if tonumber(value) <= bound then
      bucket = string.format('%.0f', bound)
      break
    end
  end
  local series = metric .. '|' .. labels .. '|'
  tally(series .. bucket, 1)
  tally(series .. 'sum', value)
end

-- Count a run in or out of where it stands; one that is over stands nowhere. What an earlier version did not count in is
-- not counted out.
local function tally_state(state, by, label, wait)
  if label and not TERMINAL[state] then
    tally('agent_active_runs|' .. label .. '|' .. state, by)
  end
  if wait and state == 'on_hold' then
    tally('agent_holds|' .. wait, by)
  end
end

local function tally_end(to, reason)
  local label, submitted, turns, tools, cost, unpriced, used =
    get('label', 'submitted', 'turns', 'tools', 'cost', 'unpriced', 'used')
  label = label or 'other'
  tally('agent_runs_total|' .. label .. '|' .. reason, 1)
  observe('agent_run_turns', label .. '|' .. to, turns or 0)
  observe('agent_run_duration_seconds', label, now - submitted)
  observe('gen_ai_invoke_agent_inference_calls', label, turns or 0)
  observe('gen_ai_invoke_agent_tool_calls', label, tools or 0)
  if not unpriced then
    observe('agent_run_cost_usd', label, cost or 0)
  end
  if used then
    local millionths, model = used:match('^(%d+)|(.*)$')
    observe('agent_run_context_used_ratio', label .. '|' .. model, millionths)
  end
end

-- How long something was due before it was begun; `due_ms` 0: no message for it went out.
local function observe_wait(queue, due_ms)
  if due_ms > 0 then
    observe('agent_queue_wait_seconds', queue, math.max(0, now - due_ms))
  end
end

local function move(from, to)
  set('state', to)
  count('state:' .. from, -1)
  count('state:' .. to, 1)
  local label, wait = get('label', 'wait')
  tally_state(from, -1, label, wait)
  tally_state(to, 1, label, wait)
end

-- Add to the totals of the run and of its batch alike.
local function add(field, by)
  if by ~= '0' then
    redis.call('HINCRBY', run_key, field, by)
    redis.call('HINCRBY', counts_key, field, by)
  end
end

local function append_all(key)
  for _ = 1, take_number() do
    redis.call('RPUSH', key, take())
  end
end

-- What every write at the end of an attempt carries: see TurnWrite in port.py.
local function take_write()
  append_all(log_key)
  append_all(ledger_key)
  set('streaks', take())
  for _, field in ipairs({'context', 'container', 'cleared', 'used'}) do
    local value = take()
    if value ~= '' then
      set(field, value)
    end
  end
  tally_all()
  for _, field in ipairs({'input', 'cache_read', 'cache_write', 'output', 'cost', 'unpriced', 'working', 'tools',
    'maybe_tokens', 'maybe_cost', 'turns', 'lost'}) do
    add(field, take())
  end
end

local function due_again(from, turn)
  set('turn', turn, 'sent', now, 'owner', '', 'until', 0, 'hold', 0, 'why', '')
  move(from, 'turn_due')
  look_at(now + look_ms)
end

local function end_run(from, to, reason, class, message, answer)
  set('reason', reason, 'class', class, 'message', message, 'ended', now, 'owner', '', 'until', 0, 'hold', 0,
    'why', '')
  if answer then
    set('answer', answer)
  end
  redis.call('HINCRBY', run_key, 'fence', 1)
  redis.call('ZREM', due_key, run_id)
  if to ~= 'failed' and to ~= 'stopped' then
    redis.call('DEL', calls_key, results_key)  -- else they are needed if the run is to go on
  end
  if to == 'failed' then
    redis.call('ZADD', dead_key, now, run_id)
    redis.call('ZREMRANGEBYSCORE', dead_key, '-inf', now - retention_s * 1000)
    redis.call('EXPIRE', dead_key, retention_s)
  end
  move(from, to)
  tally_end(to, reason)
  redis.call('EXPIRE', metrics_key, retention_s)
  count('reason:' .. reason, 1)
  if redis.call('HINCRBY', counts_key, 'active', -1) <= 0 then
    redis.call('EXPIRE', counts_key, retention_s)
  end
  for _, key in ipairs({run_key, log_key, ledger_key, seen_key, calls_key, results_key, whole_key}) do
    redis.call('EXPIRE', key, retention_s)
  end
end

local function end_cancelled(from)
  end_run(from, 'cancelled', 'cancelled', 'cancelled', 'cancelled')
end

-- Whether a run is no longer where it was when it was examined. One that is forgotten leaves the index.
local function has_moved(fence, wanted)
  local state, turn, held = get('state', 'turn', 'fence')
  if not state then
    redis.call('ZREM', due_key, run_id)
    return true
  end
  return TERMINAL[state] or held ~= fence or turn ~= wanted
end

-- Why a write of a claimed turn may not be made; nil if it may. The nonce tells a repeated write from a late one.
local function refused(fence, wanted, nonce)
  local state, held, turn, last = get('state', 'fence', 'turn', 'last')
  if last == nonce then
    return 'written'
  end
  if state ~= 'in_turn' or held ~= fence or turn ~= wanted then
    return 'lost'
  end
  set('last', nonce)
  return nil
end

-- Ends a run that somebody asked to cancel, in place of what a write would have made of it.
local function cancelled_instead(from)
  if get('cancel') == '1' then
    end_cancelled(from)
    return true
  end
  return false
end

-- A call's claim, as stored: attempt, owner (empty: none), until, nonce, when it began, workers lost so far.
local function claim_of(call)
  local stored = redis.call('HGET', calls_key, call .. ':claim')
  if not stored then
    return 0, '', 0, '', 0, 0
  end
  local attempt, owner, till, nonce, began, losses =
    stored:match('^([^|]*)|([^|]*)|([^|]*)|([^|]*)|?([^|]*)|?([^|]*)$')
  return tonumber(attempt), owner, tonumber(till), nonce, tonumber(began) or 0, tonumber(losses) or 0
end

local function set_claim(call, attempt, owner, till, nonce, began, losses)
  redis.call('HSET', calls_key, call .. ':claim', table.concat({attempt, owner, till, nonce, began, losses}, '|'))
end

-- A call's doubt, as stored: who is asked (nil: it is in no doubt), which worker ran it, since when, nonce.
local function doubt_of(call)
  local stored = redis.call('HGET', calls_key, call .. ':doubt')
  if stored then
    return stored:match('^([^|]*)|([^|]*)|([^|]*)|([^|]*)$')
  end
end

local function set_doubt(call, asked, worker, began, nonce)
  redis.call('HSET', calls_key, call .. ':doubt', table.concat({asked, worker, began, nonce}, '|'))
end

local function has_result(call)
  return redis.call('HEXISTS', results_key, call) == 1
end

-- What a call came to: see CallResult in port.py. Answers the call and its block.
local function take_result()
  local call, block, entry, working, is_cut, whole = take(), take(), take(), take(), take(), take()
  redis.call('RPUSH', ledger_key, entry)
  add('tools', '1')
  add('working', working)
  tally_all()
  if is_cut == '1' then
    redis.call('HSET', whole_key, call, whole)
  end
  return call, block
end

-- The first `once` call of the turn, in id order, that has no result; nil if there is none.
local function once_due()
  for call in string.gmatch(get('once') or '', '%S+') do
    if not has_result(call) then
      return call
    end
  end
  return nil
end

-- Whether a call other than this one is running.
local function another_runs(than)
  for _, field in ipairs(redis.call('HKEYS', calls_key)) do
    local call = field:match('^(.*):claim$')
    if call and call ~= than then
      local _, owner = claim_of(call)
      if owner ~= '' and not has_result(call) then
        return true
      end
    end
  end
  return false
end

-- Whether a call of a `once` tool, by the list of them.
local function is_once(call)
  return (' ' .. (get('once') or '') .. ' '):find(' ' .. call .. ' ', 1, true) ~= nil
end

-- What a person has said about a call, as stored: 'wanted' (nothing yet), 'denied'; nil: it may run.
local function permission_of(call)
  return redis.call('HGET', calls_key, call .. ':approval') or nil
end

local function set_permission(call, permission)
  redis.call('HSET', calls_key, call .. ':approval', permission)
end

-- Whether a call runs, or may be begun: not while a person is asked about it, nor if it is `once` and behind another.
local function can_get_on(call)
  local _, owner = claim_of(call)
  if owner ~= '' then
    return true
  end
  return doubt_of(call) ~= 'person' and not permission_of(call) and (not is_once(call) or once_due() == call)
end

-- Move a run to await a person if that is all it can do: a decision about a doubt first.
local function await_person_if_stuck()
  local asked, turn = get('asked', 'turn')
  if asked ~= turn then
    return
  end
  local to = 'awaiting_approval'
  for _, call in ipairs(redis.call('HKEYS', calls_key)) do
    local is_call = not call:find(':claim$') and not call:find(':doubt$') and not call:find(':approval$')
    if is_call and not has_result(call) then
      if can_get_on(call) then
        return
      end
      to = doubt_of(call) == 'person' and 'awaiting_decision' or to
    end
  end
  move('in_tools', to)
  look_at(now)
end

-- Move a run on whose calls all have results; `closer` is the call that brought the last. Whether it did.
local function join_if_complete(closer)
  if redis.call('HLEN', results_key) ~= tonumber(get('open')) then
    return false
  end
  set('sent', now, 'owner', '', 'until', 0, 'closer', closer)
  move('in_tools', 'joining')
  look_at(now + look_ms)
  return true
end

-- Let a run go on after a person's word about a call; `state` is where it stood.
local function go_on_after_person(state, call)
  if state ~= 'in_tools' then
    -- A sweeper that has just seen it wait would put the next look far off: it has seen another run than this.
    redis.call('HINCRBY', run_key, 'fence', 1)
    move(state, 'in_tools')
  end
  if not join_if_complete(call) then
    await_person_if_stuck()
  end
  -- No message is under way: whatever is due now, the sweeper sends.
  set('sent', 0)
  look_at(now)
end
