"""The story of a sync: from the listing of a source to documents that are up to date."""
