"""The client for asyncio, written by hand; `write_sync.py` writes the one for threads from it."""
