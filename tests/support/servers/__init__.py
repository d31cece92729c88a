"""Servers that stand for the world outside a node: a website, model servers, Redis, PostgreSQL; real ones where there are any."""
