"""Nodes for tests: behind HTTP, as the real programs, or with jobs that do nothing; and the command line to speak to them."""
