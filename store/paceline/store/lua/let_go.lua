-- let_go: a run that is over leaves the index.   -> gone | stays
if not TERMINAL[get('state')] then
  return 'stays'
end
redis.call('ZREM', due_key, run_id)
return 'gone'
