-- Gives: now, the millisecond on the clock of Redis itself. No client's clock counts.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
