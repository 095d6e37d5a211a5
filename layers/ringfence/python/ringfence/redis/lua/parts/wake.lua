-- Gives: wake_one(): lets one worker that blocks on the list look again. One token is enough, since whoever takes it passes it
-- on while there is more to come; so the list never grows.
local function wake_one()
  if redis.call('LLEN', wake) == 0 then
    redis.call('RPUSH', wake, '1')
  end
end
