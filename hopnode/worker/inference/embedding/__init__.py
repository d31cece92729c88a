"""Text to unit vectors: local embedders and embedders behind HTTP."""
