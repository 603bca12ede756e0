"""A store of several shards: each shard is a store of its own, and has all rows of some jobs."""
