-- extend: hides leased messages for longer (or shorter), counted from now, but not beyond the most that a lease may last.
--
-- KEYS[1]   messages: the sorted set of the queue, scored by the millisecond at which each is visible
-- ARGV[1]   the lease in milliseconds
-- ARGV[2]   the most milliseconds that a lease may last, all extensions included
-- ARGV[3…]  member, deliveries, the millisecond of the lease, member, deliveries, …
-- Returns   the indices, from 0, of the leases that are over: ended, taken by another, or gone
-- Errors    READONLY: nothing was extended. Never OOM
local messages = KEYS[1]
-- include: now
-- include: first_write
-- include: receipts

local members = {}
for i = 3, #ARGV, 3 do
  members[#members + 1] = ARGV[i]
end
local scores = redis.call('ZMSCORE', messages, unpack(members))
local lost, scored = {}, {}
for i = 1, #members do
  local deliveries, leased_at = ARGV[3 * i + 1], tonumber(ARGV[3 * i + 2])
  if is_current(scores[i], deliveries) and leased_at and tonumber(scores[i]) >= now + 1 then
    local ends_at = math.min(now + ARGV[1], leased_at + ARGV[2])
    scored[#scored + 1] = until_with(ends_at, deliveries)
    scored[#scored + 1] = members[i]
  else
    lost[#lost + 1] = i - 1
  end
end
if #scored > 0 then
  redis.call('ZADD', messages, unpack(scored))
end
return lost
