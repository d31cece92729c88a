"""The command `eval`, on this machine or on a node."""
