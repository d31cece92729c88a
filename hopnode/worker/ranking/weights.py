"""The file of weights, `ranking.json`: reads, checks and writes it. Knows the names of the signals, not what they measure.

The file holds an origin, which says what it was fitted on and how. For each round it holds five lines of numbers, every number
under the name of its signal. A sha256 over the rounds proves that nobody changed a number by hand.
"""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from hopnode.worker.errors import ConfigurationError
from hopnode.worker.ranking.signals import names_of

FORMAT = 1
ROUNDS = 3
"""Rounds of weighing: the question alone, then links from what the last round trusts, twice."""
BIAS = "bias"
"""The name of the last number of `trust`, which belongs to no signal."""
DIGITS = 5
"""Decimal places of a weight in the file."""
LINES = ("mean", "scale", "trust", "order", "words")
"""What a round holds, in the order of `Round`."""

Numbers: TypeAlias = NDArray[np.float64]
NamedNumbers: TypeAlias = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Round:
    """Weights of one round, for standardised signals. `trust` gives a probability; its last entry is the bias. `order` gives
    a score that compares chunks of one question. `words` is `order` where vectors know little of the language."""

    mean: Numbers
    scale: Numbers
    trust: Numbers
    order: Numbers
    words: Numbers


class Origin(BaseModel):
    """Where weights come from. `reproduced` says whether `command` gives these very numbers today, `remarks` why not, and
    whatever else a reader has to know. `languages` are codes; dates are ISO 8601."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sets: tuple[str, ...]
    languages: tuple[str, ...]
    fitted_on: str
    command: str
    reproduced: bool
    remarks: tuple[str, ...] = ()


class _File(BaseModel):
    """The file as it is written."""

    model_config = ConfigDict(extra="forbid")

    format: int
    origin: Origin
    sha256: str
    rounds: list[dict[str, dict[str, float]]]


def digest_of(rounds: Sequence[NamedNumbers]) -> str:
    """The sha256 over names and numbers, whatever the layout of the file."""
    return hashlib.sha256(json.dumps(rounds, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def written(origin: Origin, rounds: Sequence[Round]) -> str:
    """The text of the file, with numbers rounded to DIGITS places. Raises ConfigurationError for what `loaded` would refuse, and
    ValueError for a line that has not as many numbers as there are signals."""
    named = [_named(number, one) for number, one in enumerate(rounds, start=1)]
    stored = {"format": FORMAT, "origin": origin.model_dump(), "sha256": digest_of(named), "rounds": named}
    text = json.dumps(stored, indent=1, ensure_ascii=False) + "\n"
    loaded(text)
    return text


def loaded(text: str) -> tuple[Origin, tuple[Round, ...]]:
    """Origin and rounds of a file.

    Raises ConfigurationError for a file of another format, and when the sha256 does not fit. So it does for names that are
    missing, unknown or in another order than the signals', and for numbers that cannot weigh anything.
    """
    try:
        stored = _File.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise _refused(f"{'.'.join(map(str, first['loc'])) or 'the file'}: {first['msg']}") from error
    if stored.format != FORMAT:
        raise _refused(f"its format is {stored.format}, this version reads {FORMAT}")
    if len(stored.rounds) != ROUNDS:
        raise _refused(f"it holds {len(stored.rounds)} rounds, not {ROUNDS}")
    rounds = tuple(_round(number, one) for number, one in enumerate(stored.rounds, start=1))
    if stored.sha256 != digest_of(stored.rounds):
        raise _refused("its sha256 does not fit its weights, so somebody or something changed them")
    return stored.origin, rounds


def _named(number: int, weights: Round) -> NamedNumbers:
    return {
        line: dict(
            zip(_names_in(number, line), [round(float(one), DIGITS) for one in getattr(weights, line)], strict=True)
        )
        for line in LINES
    }


def _round(number: int, lines: NamedNumbers) -> Round:
    _check_names(f"round {number}", list(lines), list(LINES))
    for line, numbers in lines.items():
        place = f"round {number}, {line}"
        _check_names(place, list(numbers), _names_in(number, line))
        for name, value in numbers.items():
            if not math.isfinite(value) or (line == "scale" and value <= 0):
                raise _refused(f"{place}: {name} is {value}")
    return Round(*(np.array(list(lines[line].values()), np.float64) for line in LINES))


def _names_in(number: int, line: str) -> list[str]:
    return [*names_of(number), *((BIAS,) if line == "trust" else ())]


def _check_names(place: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    if missing := [name for name in wanted if name not in found]:
        raise _refused(f"{place}: missing {', '.join(missing)}")
    if unknown := [name for name in found if name not in wanted]:
        raise _refused(f"{place}: unknown {', '.join(unknown)}")
    if list(found) != list(wanted):
        raise _refused(f"{place}: the names are not in the order of the signals")


def _refused(why: str) -> ConfigurationError:
    return ConfigurationError(
        f"The weights of the ranking (ranking.json) cannot be used: {why}. Install Hopnode again, or write the file anew with "
        "bench/train_offline.py --write."
    )
