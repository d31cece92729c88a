"""The agent loop: rules of context, budget and tools. Knows no HTTP, no SQL and no queue."""
