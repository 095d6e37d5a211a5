-- A script may go on writing when the memory is full once it has written, and what follows moves or removes what is there.
-- PERSIST may write at any time and changes nothing, for the set never expires. (Redis 7 has `#!lua flags=allow-oom` for
-- this; Redis 6.2 cannot read that line.)
redis.call('PERSIST', messages)
