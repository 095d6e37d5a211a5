-- release: makes leased messages visible again after a delay. A lease that is over is passed over.
--
-- KEYS[1]   messages: the sorted set of the queue, scored by the millisecond at which each is visible
-- KEYS[2]   wake: the list that waiting workers block on
-- ARGV[1]   the delay in milliseconds
-- ARGV[2]   1 if a worker that waits is to look at once, else 0
-- ARGV[3…]  member, deliveries, member, deliveries, …
-- Returns   0
-- Errors    READONLY: nothing was released. Never OOM
local messages, wake = KEYS[1], KEYS[2]
-- include: now
-- include: first_write
-- include: receipts
-- include: wake

local members = {}
for i = 3, #ARGV, 2 do
  members[#members + 1] = ARGV[i]
end
local scores = redis.call('ZMSCORE', messages, unpack(members))
local scored = {}
for i = 1, #members do
  local deliveries = ARGV[2 * i + 2]
  if is_current(scores[i], deliveries) and tonumber(scores[i]) >= now + 1 then
    scored[#scored + 1] = until_with(now + ARGV[1], deliveries)
    scored[#scored + 1] = members[i]
  end
end
if #scored > 0 then
  redis.call('ZADD', messages, unpack(scored))
  if ARGV[2] == '1' then
    wake_one()
  end
end
return 0
