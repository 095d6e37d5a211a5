-- lease: takes visible messages and hides them.
--
-- KEYS[1]   messages: the sorted set of the queue, scored by the millisecond at which each is visible
-- KEYS[2]   wake: the list that waiting workers block on
-- ARGV[1]   the most messages to take
-- ARGV[2]   the lease in milliseconds
-- ARGV[3]   how long, in milliseconds, a waiting worker waits before it looks by itself
-- ARGV[4]   1 if this worker waits when there is nothing, or never waited; 0 if its wait is over
-- Returns   {now, next, lost, member, deliveries, member, deliveries, …}, see parts/lease.lua
-- Errors    READONLY: nothing was taken. Never OOM
local messages, wake = KEYS[1], KEYS[2]
-- include: now
-- include: first_write
-- include: marker
-- include: receipts
-- include: wake
-- include: lease

return lease(tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4] == '1')
