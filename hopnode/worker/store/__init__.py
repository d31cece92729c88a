"""Everything that lives in the SQL database of the node; the only place with its tables and statements."""
