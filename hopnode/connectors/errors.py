"""What can go wrong between the node and the outside world; the sync engine turns these into outcomes of an item or of the job.

ConnectorError
 ├─ EgressBlocked       The operator of the node does not let it go there.
 ├─ InvalidAddress      No HTTP request can be sent to it.
 ├─ InvalidConfig       The configuration of a source cannot work.
 ├─ BodyTooLarge · BodyUnreadable · PageRejected · TooManyRedirects
 └─ SourceUnreachable   No answer now; trying later can help.
     ├─ FetchTimeout
     └─ RobotsUnavailable
"""

from typing import ClassVar


class ConnectorError(Exception):
    """Root of the errors that connectors raise on purpose; `str(error)` is a sentence that a user can act on.

    `details` are for the log of the operator and may name addresses that a user of the node has no business to know.
    """

    code: ClassVar[str] = "connector-error"
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **details: object) -> None:
        super().__init__(message)
        self.details = details


class EgressBlocked(ConnectorError):
    """The address is not public and no setting allows it; the message names the settings."""

    code = "egress-blocked"


class InvalidAddress(ConnectorError):
    """The URL has no host, another scheme than http(s), or carries a user name or password."""

    code = "invalid-address"


class InvalidConfig(ConnectorError):
    """The configuration of a source is not valid; the message says which field and why."""

    code = "invalid-config"


class BodyTooLarge(ConnectorError):
    """The body has more decoded bytes than the caller takes."""

    code = "too-large"


class BodyUnreadable(ConnectorError):
    """The body is cut short, damaged, or coded in a way that was not asked for."""

    code = "unreadable"
    retryable = True


class PageRejected(ConnectorError):
    """An HTML page that cannot be read within reasonable time and memory."""

    code = "malformed"


class TooManyRedirects(ConnectorError):
    """The redirects do not end within the limit."""

    code = "too-many-redirects"


class SourceUnreachable(ConnectorError):
    """No such host, no connection, or the connection broke."""

    code = "unreachable"
    retryable = True


class FetchTimeout(SourceUnreachable):
    """The answer was not there in time."""

    code = "timeout"


class RobotsUnavailable(SourceUnreachable):
    """robots.txt answers with a server error or not at all: until it does, nothing may be fetched (RFC 9309, 2.3.1.4)."""

    code = "robots-unavailable"
