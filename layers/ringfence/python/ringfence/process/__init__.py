"""Workers outside Lambda: processes that lease from SQS or Redis. ``ringfence worker``."""
