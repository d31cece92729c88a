"""Runs of the agent with scripted models over a small search space in memory."""
