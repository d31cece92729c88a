"""The Model Context Protocol: the node's searches and documents as tools of a language model."""
