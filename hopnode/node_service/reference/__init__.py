"""What the node writes about itself: the OpenAPI document, its page, and the pages of settings."""
