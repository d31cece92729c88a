"""Entrances that speak the form of another product: Dify, MCP and OpenAI. All of them order searches as the other routes do."""
