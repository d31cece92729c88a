"""What every HTTP request meets: keys, parts by type, errors, waiting, pages, log lines and figures. Knows no route."""
