"""How a command ends: the stable exit codes, the error that carries its own mending, and the sentences a user sees.

Knows every family of errors and no command; what it prints goes to stderr, so that stdout holds results only.
"""

import sys
import traceback
from enum import IntEnum

from hopnode.worker.errors import (
    ConfigurationError,
    DataFolderInUse,
    Forbidden,
    HopnodeError,
    NodeError,
    NotFound,
    StoreUnavailable,
    Unauthorized,
    VectorsUnavailable,
)


class ExitCode(IntEnum):
    """What scripts may rely on; `docs/cli.md` explains each. 130 (Ctrl-C) is the shell's own convention."""

    OK = 0
    FAILED = 1
    USAGE = 2
    PARTLY_FAILED = 3
    REFUSED = 4
    INTERRUPTED = 130


class CommandError(NodeError):
    """Ends a command: `str(error)` says what is wrong, `mend` how to put it right."""

    code = "command"

    def __init__(self, message: str, mend: str, exit_code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.mend = mend
        self.exit_code = exit_code


DOCTOR = "Run `hopnode doctor`: it checks the set-up and says how to mend what is missing."
_MENDS: dict[type[HopnodeError], str] = {
    DataFolderInUse: "Stop that process, set HOPNODE_URL to its address, or choose another folder with HOPNODE_DATA_DIR.",
    ConfigurationError: "Change the setting in the environment or in `.env`; `hopnode doctor` shows what is in force.",
    StoreUnavailable: "Check HOPNODE_DATABASE_URL and that the database runs; `hopnode doctor` looks at both.",
    VectorsUnavailable: "Check HOPNODE_CHROMA_URL and that the Chroma server runs.",
}
_REFUSALS = (NotFound, Unauthorized, Forbidden)


def report(error: Exception, *, debug: bool) -> ExitCode:
    """Writes the two sentences for `error` to stderr (and its traceback with `debug`); returns the exit code."""
    if debug:
        traceback.print_exception(error)
    if isinstance(error, HopnodeError):
        code = ExitCode.REFUSED if isinstance(error, _REFUSALS) else ExitCode.FAILED
        code = error.exit_code if isinstance(error, CommandError) else code
        return _say(str(error), mend_for(error), code)
    summary = f"Something unexpected went wrong: {type(error).__name__}: {error}"
    return _say(summary, "Run the command again with `hopnode --debug …` to see where.", ExitCode.FAILED)


def mend_for(error: HopnodeError) -> str:
    """The sentence that says how to put `error` right."""
    return error.mend if isinstance(error, CommandError) else _MENDS.get(type(error), DOCTOR)


def _say(message: str, mend: str, code: ExitCode) -> ExitCode:
    print(f"error: {message}\n  mend: {mend}", file=sys.stderr)
    return code
