"""What the `hopnode` commands do, one module per group; client commands know the node's HTTP contract only."""
