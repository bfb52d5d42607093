-- finish: the run is over.   -> written | lost
-- ARGV fence nonce to reason class message has_answer answer write
local fence, nonce, to, reason, class, message = take(), take(), take(), take(), take(), take()
local has_answer, answer = take() == '1', take()
local state, held, last = get('state', 'fence', 'last')
if last == nonce then
  return 'written'
end
if not state or TERMINAL[state] or held ~= fence then
  return 'lost'
end
set('last', nonce)
take_write()
end_run(state, to, reason, class, message, has_answer and answer)
return 'written'
