"""A real vLLM server on the CPU, and the models that are made for it on the spot."""
