"""Vector indexes in Chroma, how they are kept up to date, and the process that serves them."""
