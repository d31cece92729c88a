"""The house read as text and syntax trees: what it consists of, and what its pages and tests say of it."""
