"""Structured logging: one stable event name a line, ids bound by context; never document text, never secrets."""

import logging
import sys
from typing import Any, Literal, cast

import structlog


def configure(level: Literal["debug", "info", "warning", "error"], style: Literal["console", "json"]) -> None:
    """Sets the process-wide log form; lines go to stderr so that stdout stays for results."""
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if style == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger whose lines carry `logger_name=name` (`logger` is a parameter of structlog itself)."""
    return cast(structlog.stdlib.BoundLogger, structlog.get_logger(logger_name=name))
