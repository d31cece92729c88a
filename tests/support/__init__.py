"""Real services and sample files for the tests; each is started on a free port and ended by its process id."""
