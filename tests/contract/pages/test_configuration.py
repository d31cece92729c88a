"""The page of settings and `.env.example`: what the code says, complete, and true."""

import re
from pathlib import Path

import pytest
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from hopnode.node_service.reference.settings_pages import FILES, PREFIX, SECTIONS, fields
from hopnode.node_service.settings import ServiceSettings
from hopnode.worker.settings import WorkerSettings

ROOT = Path(__file__).parents[3]
ROWS = dict(
    re.findall(
        rf"^\| `{PREFIX}(\w+)` \|.*?\| ([^|]*) \|[^|]*\|$", (ROOT / "docs/configuration.md").read_text(), re.MULTILINE
    )
)
"""What each setting may hold, as the page says it, by the setting's name."""


def load(name: str, value: object) -> BaseSettings:
    kind = WorkerSettings if name in WorkerSettings.model_fields else ServiceSettings
    return kind(_env_file=None, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("place", FILES)
def test_the_committed_file_is_what_the_code_says(place: str) -> None:
    assert (ROOT / place).read_text(encoding="utf-8") == FILES[place](), f"run `make settings` and commit {place}"


def test_every_setting_has_its_place_and_only_one() -> None:
    placed = [name for names in SECTIONS.values() for name in names]
    assert sorted(placed) == sorted(fields())
    assert sorted(name.lower() for name in ROWS) == sorted(fields())


def test_no_setting_is_read_by_two_classes() -> None:
    assert not WorkerSettings.model_fields.keys() & ServiceSettings.model_fields.keys()


def test_every_setting_says_what_it_means() -> None:
    assert [name for name, field in fields().items() if not (field.description or "").endswith(".")] == []


@pytest.mark.parametrize("kind", [WorkerSettings, ServiceSettings])
def test_the_example_with_every_setting_taken_up_changes_nothing(kind: type[BaseSettings], tmp_path: Path) -> None:
    lines = re.sub(rf"^# ({PREFIX}\w+=)", r"\1", (ROOT / ".env.example").read_text(), flags=re.MULTILINE)
    assert lines.count(f"\n{PREFIX}") == len(fields())
    taken_up = tmp_path / "taken-up.env"
    taken_up.write_text(lines)
    read = kind(_env_file=taken_up).model_dump()  # type: ignore[call-arg]
    unset = kind(_env_file=None).model_dump()  # type: ignore[call-arg]
    assert {name: value or None for name, value in read.items()} == {
        name: value or None for name, value in unset.items()
    }


@pytest.mark.parametrize("kind", [WorkerSettings, ServiceSettings])
def test_an_empty_text_is_as_good_as_none(kind: type[BaseSettings], tmp_path: Path) -> None:
    emptied = tmp_path / "emptied.env"
    emptied.write_text("".join(f"{PREFIX}{name.upper()}=\n" for name in fields()))
    assert kind(_env_file=emptied) == kind(_env_file=None)  # type: ignore[call-arg]


@pytest.mark.parametrize("setting", [name for name, values in ROWS.items() if "number" in values])
def test_a_number_is_refused_exactly_beyond_the_bounds_that_the_page_tells(setting: str) -> None:
    bounds = re.findall(r"([>≥≤]) ([\d,]+)", ROWS[setting])
    assert bounds
    for sign, digits in bounds:
        bound = int(digits.replace(",", ""))
        beyond = bound + 1 if sign == "≤" else bound if sign == ">" else bound - 1
        load(setting.lower(), bound + 1 if sign == ">" else bound)
        with pytest.raises(ValidationError):
            load(setting.lower(), beyond)


@pytest.mark.parametrize("setting", [name for name, values in ROWS.items() if values.startswith("`")])
def test_a_word_is_taken_exactly_when_the_page_lists_it(setting: str) -> None:
    more = {"embedder_url": "http://127.0.0.1:1/v1", "embedder_model": "any"}
    more |= {"reranker_url": "http://127.0.0.1:1", "reranker_model": "any"}
    more |= {"chat_url": "http://127.0.0.1:1/v1", "chat_model": "any"}
    for word in re.findall(r"`([\w-]+)`", ROWS[setting]):
        WorkerSettings(_env_file=None, **{setting.lower(): word}, **more)  # type: ignore[arg-type]
    with pytest.raises(ValidationError):
        load(setting.lower(), "anything")


WRONG = {
    "redis_url": "127.0.0.1:6379",
    "chroma_url": "localhost:8000",
    "chat_url": "ftp://host/v1",
    "embedder_url": "http://",
    "reranker_url": "127.0.0.1:80",
    "answer_url": "http://127.0.0.1:80/v1",
    "answer_model": "writer",
    "profile": "context-1",
    "egress_allow_hosts": "n8n.internal",
    "egress_allow_cidrs": "10.0.0.0/8, everything",
    "lease_seconds": "inf",
    "max_wait_seconds": "nan",
}


@pytest.mark.parametrize("setting", WRONG)
def test_a_value_that_could_never_work_is_refused_at_the_start_and_the_message_names_the_setting(setting: str) -> None:
    with pytest.raises(ValidationError) as caught:
        load(setting, WRONG[setting])
    (error,) = caught.value.errors()
    assert setting in (*error["loc"], error["msg"].partition(":")[0]) or f"{PREFIX}{setting.upper()}" in error["msg"]
