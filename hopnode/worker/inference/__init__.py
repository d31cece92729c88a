"""The seam to models: embedders, chat endpoints and their doubles. Knows no workspace and no SQL."""
