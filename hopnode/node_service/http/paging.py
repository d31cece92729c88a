"""Cursors of list routes: opaque to callers, so that what they hold may change with any version."""

import base64
import binascii

from hopnode.node_service.http.problems import FieldError, InvalidFields

PAGE_DEFAULT, PAGE_MOST = 50, 200


def encode_cursor(position: str) -> str:
    """A cursor for `position`, safe in a URL."""
    return base64.urlsafe_b64encode(position.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> str | None:
    """The position in a cursor of `encode_cursor`. Raises InvalidFields for anything else."""
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise bad_cursor() from error


def bad_cursor() -> InvalidFields:
    """The error for a cursor that no list gave out."""
    return InvalidFields(
        [
            FieldError(
                **{"in": "query"},
                field="cursor",
                message="This is not a cursor that the list gave out; leave it away to start at the beginning.",
                code="bad_cursor",
            )
        ]
    )
