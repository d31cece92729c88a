"""The command `demo`, its sample and its view."""
