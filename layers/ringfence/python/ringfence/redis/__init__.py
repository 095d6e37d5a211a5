"""Queues on Redis 6.2 or newer, and on Valkey. The only folder that imports redis-py; its README tells the protocol."""
