"""Options that several commands share, so that they read the same everywhere."""

from typing import Annotated

import typer

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
