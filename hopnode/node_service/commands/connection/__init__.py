"""How a client command reaches a node: the HTTP client, the running node of a folder, or a node of its own."""
