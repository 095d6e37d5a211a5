-- Gives: lease(most, lease_ms, look_ms, stays) → {now, next, lost, member, deliveries, member, deliveries, …}, the longest visible
-- first. Only when there is no member: next is the milliseconds until the next message is visible, or -1; lost is 1 if the set
-- had no marker.
local function lease(most, lease_ms, look_ms, stays)
  local due = redis.call(
    'ZRANGEBYSCORE', messages, '-inf', string.format('(%.0f', now + 1), 'WITHSCORES', 'LIMIT', 0, most + 1
  )
  local taken = math.min(#due / 2, most)
  local reply, scored = {now, -1, 0}, {}
  -- Nearly all are handed out for the first time, and so get the same score: written out once, which Redis would do each time.
  local first_score = string.format('%.17g', until_with(now + lease_ms, 1))
  for i = 1, 2 * taken, 2 do
    local deliveries = deliveries_of(due[i + 1]) + 1
    if deliveries == 1 then
      scored[i] = first_score
    else
      deliveries = math.min(deliveries, STEPS - 1)
      scored[i] = until_with(now + lease_ms, deliveries)
    end
    scored[i + 1] = due[i]
    reply[i + 3], reply[i + 4] = due[i], deliveries
  end
  if taken > 0 then
    redis.call('ZADD', messages, unpack(scored))
  end
  if #due / 2 > taken then
    wake_one()
    return reply
  end
  local hidden = redis.call('ZRANGEBYSCORE', messages, now + 1, FAR, 'WITHSCORES', 'LIMIT', 0, 1)
  if #hidden > 0 then
    reply[2] = math.floor(hidden[2]) - now
  end
  if taken == 0 then
    reply[3] = mark()
  end
  if (taken > 0 or not stays) and reply[2] >= 0 and reply[2] < look_ms then
    wake_one() -- this worker will not be there when that falls due; another must know
  end
  return reply
end
