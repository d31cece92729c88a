"""Sources, their items, and their runs."""
