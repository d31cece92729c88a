"""The commands `model launch` and `model check`."""
