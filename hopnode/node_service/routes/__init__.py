"""One module per resource of the HTTP contract; routes never import one another."""
