"""What one call of the command line carries: the two settings objects, read when first asked for, and `--debug`."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from hopnode.node_service.commands.terminal.exits import CommandError, ExitCode

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_settings import BaseSettings

    from hopnode.node_service.settings import ServiceSettings
    from hopnode.worker.settings import WorkerSettings

S = TypeVar("S", bound="BaseSettings")


@dataclass
class Invocation:
    """Passed from the entry point to every command; settings are imported late to keep `--help` quick."""

    debug: bool = False

    @cached_property
    def settings(self) -> "WorkerSettings":
        """Settings of the working half; CommandError (usage) names what is wrong with them."""
        from hopnode.worker.settings import WorkerSettings

        return load(WorkerSettings)

    @cached_property
    def service(self) -> "ServiceSettings":
        """Settings of the HTTP face; CommandError (usage) names what is wrong with them."""
        from hopnode.node_service.settings import ServiceSettings

        return load(ServiceSettings)

    def quiet_logs(self) -> None:
        """Logs for commands that print results: errors only, everything with `--debug`."""
        from hopnode.worker import logs

        logs.configure("debug" if self.debug else "error", self.settings.log_format)


def load(kind: type[S], **values: object) -> S:
    """Reads settings of `kind`; `values` go before the environment. A wrong value becomes a CommandError."""
    from pydantic import ValidationError

    try:
        return kind(**values)  # pyright: ignore[reportArgumentType]
    except ValidationError as error:
        raise CommandError(
            f"A setting is wrong: {_first(error)}.",
            "Change it in the environment or in `.env`; docs/configuration.md lists what each may hold.",
            ExitCode.USAGE,
        ) from error


def _first(error: "ValidationError") -> str:
    first = error.errors()[0]
    name = "_".join(str(part) for part in first["loc"]).upper()
    message = first["msg"].removeprefix("Value error, ").rstrip(".")
    return f"HOPNODE_{name}: {message}" if name else message
