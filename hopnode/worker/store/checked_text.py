"""What names and texts from outside may look like before they reach the database; knows no table."""

import re

from hopnode.worker.errors import InvalidRequest

_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def check_slug(name: str, what: str) -> str:
    """A name that is safe in URLs and paths, as it came; raises `InvalidRequest` with the rule."""
    if not _SLUG.fullmatch(name):
        raise InvalidRequest(
            f"The name of a {what} has 1 to 63 characters: a to z, 0 to 9, dot, hyphen, underscore; "
            "it starts with a letter or digit."
        )
    return name


def check_label(label: str, what: str, longest: int) -> str:
    """A one-line name for people, as it came; raises `InvalidRequest` when empty, too long or unprintable."""
    if not label.strip() or len(label) > longest or not label.isprintable():
        raise InvalidRequest(f"The {what} has 1 to {longest} printable characters.")
    return label


def check_text(text: str, what: str, longest: int) -> str:
    """A text that both databases can keep (no NUL, no half surrogate), as it came; raises `InvalidRequest`."""
    if len(text) > longest:
        raise InvalidRequest(f"The {what} has at most {longest} characters.")
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidRequest(f"The {what} holds characters that are not text.")
    return text
