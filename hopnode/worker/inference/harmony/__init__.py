"""The harmony format of gpt-oss models: rendering, reading, and its vocabulary."""
