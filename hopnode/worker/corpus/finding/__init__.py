"""Finding chunks: both legs, their fusion, grep, filters, and what a question may ask of the index."""
