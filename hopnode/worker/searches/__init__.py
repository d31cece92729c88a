"""The story of a search: from the stored request to passages with citations."""
