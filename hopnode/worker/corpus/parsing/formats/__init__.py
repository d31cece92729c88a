"""One reader per family of file formats: bytes in, draft text out; readers know no limits of time and nothing of storage."""
