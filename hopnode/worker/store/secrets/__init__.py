"""Secrets of sources, sealed: the keys that open them, and the table that holds them."""
