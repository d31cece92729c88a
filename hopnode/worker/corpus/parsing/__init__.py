"""Bytes of any format to text, in a child process with limits."""
