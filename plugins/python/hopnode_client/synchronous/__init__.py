"""The client for threads, written by `write_sync.py` from the one for asyncio; only `pausing.py` is written by hand."""
