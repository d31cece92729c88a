"""Telling: webhooks are signed, sent over the guarded transport, and tried again until they arrive or are dead."""
