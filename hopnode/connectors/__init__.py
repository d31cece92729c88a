"""The outside world as sources of documents: one module per kind, and the guarded HTTP transport they share."""
