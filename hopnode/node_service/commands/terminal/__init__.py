"""What all commands share on a terminal: results, bars, options, exit codes, and how steps read."""
