"""Cuts a document into chunks along its structure."""
