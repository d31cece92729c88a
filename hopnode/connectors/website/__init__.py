"""Websites as sources: a crawler whose items are pages and linked documents. Knows no other kind of source."""
