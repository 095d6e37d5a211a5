-- Gives: MARKER, FAR, made_at() → its score, mark() → 1 if the set had no marker and has one now, else 0.
-- The marker is a member of the set itself, far beyond every time: it is gone exactly when the set is gone, be it flushed,
-- evicted or lost with the server's memory. Its score is the microsecond at which it was made.
local MARKER = '\31memory'
local FAR = 100000000000000 -- the year 5138 in milliseconds: after every visibility, before every marker
local function made_at()
  return string.format('%.0f', time[1] * 1000000 + time[2])
end
local function mark()
  return redis.call('ZADD', messages, 'NX', made_at(), MARKER)
end
