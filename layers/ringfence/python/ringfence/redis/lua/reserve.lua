-- reserve: gives out the next releases of a queue, by GCRA: the arithmetic of ringfence/rate.py, on the clock of Redis. What was
-- given out so far is one string, "arrival latest interval": the theoretical arrival time of the next ticket, the last release,
-- both in microseconds, and the nanoseconds between two tickets by which arrival was reckoned. It expires once it says nothing
-- any more; lost with the server's memory it costs one burst too many.
--
-- KEYS[1]   pace: the string of the queue
-- ARGV[1]   how many tickets want to go
-- ARGV[2]   nanoseconds between two
-- ARGV[3]   how many may come at once after a pause
-- ARGV[4]   microseconds from now after which nothing is given out, or -1
-- Returns   {given, now, earliest, start}: how many were given out, and in microseconds the time, the earliest release, and the
--           theoretical arrival of the first; the release of ticket i (from 0) is the later of earliest and start + i intervals
--           - the tolerance
-- Errors    OOM, READONLY: nothing was given out
local pace, count, interval, burst, within = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local tolerance = math.floor((burst - 1) * interval / 1000)
local function spans(tickets)
  return math.ceil(tickets * interval / 1000)
end

local earliest, start = now, now
local reserved = redis.call('GET', pace)
if reserved then
  local arrival, latest, by = string.match(reserved, '^(%d+) (%d+) (%d+)$')
  earliest = math.max(now, tonumber(latest))
  local owed = math.max(0, arrival - earliest)
  -- A double holds 53 bits: where the pace has changed, the product may round, by a microsecond at most, towards later.
  start = earliest + (interval == tonumber(by) and owed or math.ceil(owed * interval / by))
end

local given = count
if within >= 0 then
  local last = now + within
  given = earliest > last and 0 or math.min(count, math.max(0, math.floor((last + tolerance - start) * 1000 / interval) + 1))
  while given > 0 and start + spans(given - 1) - tolerance > last do
    given = given - 1
  end
end
if given > 0 then
  local latest = math.max(earliest, start + spans(given - 1) - tolerance)
  local arrival = start + spans(given)
  local lives_ms = math.ceil((math.max(arrival, latest) - now) / 1000) + 1000
  redis.call('SET', pace, string.format('%.0f %.0f %.0f', arrival, latest, interval), 'PX', string.format('%.0f', lives_ms))
end
return {given, now, earliest, start}
