"""The event sources that Lambda's own pollers and front doors would be. One module each.

DynamoDB Streams will be read by ``streams.py``, which shares the batches of `kinesis_batch` and the shards of `kinesis`.
"""
