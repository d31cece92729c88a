"""Documentation under test: what the code knows is on its page, and what a page names exists.

Settings have tests of their own in `test_configuration.py`, the description of the HTTP interface in `test_openapi.py`.
"""

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.harness.agent import Run
from typer.main import get_command

from hopnode.node_service.cli import app
from hopnode.node_service.commands.terminal.exits import ExitCode
from hopnode.node_service.reference.settings_pages import fields
from hopnode.worker import errors
from hopnode.worker.inference.scripted import final, say, use
from hopnode.worker.settings import SUPERVISED
from hopnode.worker.store.jobs.jobs import JobStatus
from hopnode.worker.store.sources.sources import SyncCounts

ROOT = Path(__file__).parents[3]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
}
SOURCES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted((ROOT / "hopnode").rglob("*.py"))
}
API: dict[str, Any] = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))
each_page = pytest.mark.parametrize("page", PAGES)


def rows(page: str) -> dict[str, list[str]]:
    """The rows of all tables of a page by each of the words in their first cell; cells without the first."""
    found: dict[str, list[str]] = {}
    for line in re.findall(r"^\| .*\|$", PAGES[page], re.MULTILINE):
        first, *others = (cell.strip() for cell in line.strip("|").split(" | "))
        found |= dict.fromkeys(re.findall(r"`([^`]+)`", first) or [first], others)
    return found


def section(page: str, heading: str) -> str:
    """The text under a heading, up to the next one of any depth."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", PAGES[page], re.MULTILINE | re.DOTALL)
    assert found, f"{page} has no heading `{heading}`"
    return found[1]


def words(page: str) -> set[str]:
    """Everything between backticks."""
    return set(re.findall(r"`([^`\n]+)`", PAGES[page]))


# --- what the code knows is on its page ----------------------------------------------------------------------------


def test_every_operation_of_the_interface_is_on_its_page_with_the_scope_it_needs() -> None:
    operations = {
        f"{method.upper()} {path}": "` and `".join(operation.get("security", [{"key": []}])[0]["key"])
        for path, methods in API["paths"].items()
        for method, operation in methods.items()
    }
    table = rows("docs/http-api.md")
    told = {name: cells[0].strip("`") for name, cells in table.items() if re.match(r"[A-Z]+ /", name)}
    assert told == {name: scope or told.get(name) for name, scope in operations.items()}
    open_to_all = {name for name, operation in operations.items() if not operation}
    assert {told[name] for name in open_to_all} == {"any key", "no key"}


def families(root: type[errors.HopnodeError]) -> Iterator[type[errors.HopnodeError]]:
    for child in root.__subclasses__():
        yield child
        yield from families(child)


def test_every_code_of_an_error_is_on_its_page_with_the_status_that_it_is_answered_with() -> None:
    of_requests = section("docs/errors.md", "Problems of requests")
    of_jobs = section("docs/errors.md", "Errors of jobs")
    ours = {error.code: error.status for error in families(errors.NodeError) if error.__module__ == errors.__name__}
    assert [code for code in (*ours, "worker-lost") if f"| `{code}` |" not in of_requests + of_jobs] == []
    told: dict[str, str] = dict(re.findall(r"^\| `([\w-]+)` \| ([\d, ]+) \|", of_requests, re.MULTILINE))
    assert {code: status for code, status in told.items() if code in ours and str(ours[code]) not in status} == {}


def commands(group: Any, path: str = "") -> Iterator[tuple[str, list[str]]]:
    """Every command by its full name, with its options and the names of its arguments."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{name} ")
        else:
            yield f"{path}{name}", [parameter.opts[0] for parameter in command.params]


COMMANDS = dict(commands(get_command(app)))
GROUPS = {name.partition(" ")[0] for name in COMMANDS if " " in name}


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_its_place_on_the_page_with_its_arguments_and_options(name: str) -> None:
    heading, _, subcommand = name.partition(" ")
    text = section("docs/cli.md", heading)
    assert f"`hopnode {name}" in text or f"`{subcommand} " in text
    arguments = {"paths": "PATH", "key_id": "ID"}
    for option in COMMANDS[name]:
        if option != "--json":
            assert (option if option.startswith("--") else arguments.get(option, option.upper())) in text, option


def test_the_options_of_every_command_and_the_exit_codes_are_on_the_page_of_the_command_line() -> None:
    assert {"--json", "--debug"} <= set(re.findall(r"--[a-z-]+", PAGES["docs/cli.md"]))
    assert {row for row in rows("docs/cli.md") if row.isdigit()} == {str(int(code)) for code in ExitCode}


def recorded_steps() -> dict[str, set[str]]:
    """The fields of every kind of step that the agent records, as a run that meets them all recorded them."""
    run = Run(
        [
            use(("search_corpus", {"query": "director of Moonrise"})),
            use(("prune_chunks", {"chunk_ids": ["d1_1"]})),
            say("I do not know."),
            final("d1_0"),
        ]
    )
    run()
    return {step.kind: set(step.data) for step in run.recorder.steps}


def test_every_kind_of_step_is_on_its_page_with_every_field() -> None:
    table = rows("docs/harness.md")
    for kind, names in recorded_steps().items():
        assert names <= set(re.findall(r"`(\w+)`", table[kind][0])), kind
    kinds = set(re.findall(r'\._add\(\s*"(\w+)"', SOURCES["hopnode/worker/harness/trajectory.py"]))
    assert set(recorded_steps()) == kinds, "the run above shows every kind"


def test_the_two_steps_of_a_search_in_one_shot_are_on_the_page_with_every_field() -> None:
    steps = [
        (node.args[0], node.args[1])
        for node in ast.walk(ast.parse(SOURCES["hopnode/worker/searches/modes.py"]))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "step"
    ]
    assert len(steps) == 2
    text = section("docs/harness.md", "The trajectory").rpartition("\n\n")[2]
    for kind, data in steps:
        assert isinstance(kind, ast.Constant) and isinstance(data, ast.Dict)
        names = [str(kind.value), *(key.value for key in data.keys if isinstance(key, ast.Constant))]
        assert [name for name in names if f"`{name}`" not in text] == []


def test_every_end_of_a_run_and_every_degradation_is_on_the_page_of_the_harness() -> None:
    harness = "\n".join(text for path, text in SOURCES.items() if path.startswith("hopnode/worker/harness"))
    ends = set(re.findall(r'(?:LimitReached|CutShort|strike)\([^)]*?"([a-z-]+)"', harness))
    ends |= {"finished", "nothing-found", errors.ModelUnavailable.code, errors.ModelRefused.code, "prompt-too-long"}
    assert len(ends) >= 11
    table = rows("docs/harness.md")
    told = {word for cells in table.values() if cells for word in re.findall(r"`([a-z-]+)`", cells[0])}
    assert sorted(ends - told) == []
    degraded = set(re.findall(r'degraded\["([a-z-]+)"\]', harness))
    degraded |= set(re.findall(r'_UNAVAILABLE = "([a-z-]+)"', SOURCES["hopnode/worker/corpus/finding/search.py"]))
    assert len(degraded) >= 5
    named = PAGES["docs/harness.md"].partition("`degraded` names:")[2].partition("\n\n")[0]
    assert sorted(name for name in degraded if f"`{name}`" not in named) == []


def test_every_way_in_which_an_answer_can_be_less_is_on_the_page_and_so_is_its_step() -> None:
    names = set(re.findall(r'"(answer-[a-z-]+)"', SOURCES["hopnode/worker/searches/answer.py"]))
    assert len(names) == 8
    assert sorted(names - set(rows("docs/harness.md"))) == []
    (fields,) = re.findall(
        r"def step\(self\).*?return \{(.*?)\n        \}", SOURCES["hopnode/worker/searches/answer.py"], re.DOTALL
    )
    usage = re.findall(r'"(answer_[a-z_]+)":', SOURCES["hopnode/worker/searches/answer.py"])
    told = set(re.findall(r"`(\w+)`", rows("docs/harness.md")["answer"][0]))
    assert {*re.findall(r'^            "(\w+)":', fields, re.MULTILINE), *usage} <= told
    assert set(usage) <= words("docs/http-api.md")


def test_a_step_that_begins_a_search_again_is_on_the_page_with_its_fields() -> None:
    (fields,) = re.findall(r'context\.step\("restart", \{(.*?)\}\)', SOURCES["hopnode/worker/searches/job.py"])
    told = rows("docs/harness.md")["restart"][0]
    assert re.findall(r'"(\w+)":', fields) == ["attempt", "last_step"]
    assert "`attempt`" in told and "`last_step`" in told


def test_every_count_and_note_of_a_sync_is_on_the_page_of_sources() -> None:
    assert sorted(set(SyncCounts.__dataclass_fields__) - words("docs/sources.md")) == []
    notes = set(
        re.findall(
            r'"(needs-(?:js|confirmation))"',
            SOURCES["hopnode/worker/syncs/job.py"] + SOURCES["hopnode/worker/syncs/deletes.py"],
        )
    )
    assert notes == {"needs-js", "needs-confirmation"}
    assert notes <= set(rows("docs/sources.md"))


def test_the_glossary_has_every_status_and_every_kind_of_step() -> None:
    table = rows("docs/glossary.md")
    assert set(re.findall(r"`(\w+)`", table["status"][0])) == {status.value for status in JobStatus}
    told = re.findall(r'(?:(?:context|search)\.step|on_step)\("(\w+)"', "\n".join(SOURCES.values()))
    others = set(told) - {"start", "end"}
    assert len(others) >= 4
    assert set(re.findall(r"`(\w+)`", table["step"][0])) == set(recorded_steps()) | others


# --- what a page names exists ----------------------------------------------------------------------------------------


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@each_page
def test_every_link_leads_to_a_page_and_a_heading_that_are_there(page: str) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGES[page]):
        if re.match(r"https?://", target):
            continue
        place, _, anchor = target.partition("#")
        path = (ROOT / page).parent / place if place else ROOT / page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text(encoding="utf-8")), target


@each_page
def test_every_file_that_a_page_names_is_there(page: str) -> None:
    places = re.findall(r"`((?:hopnode|docs|tests|deploy|bench)/[\w./-]+)`", PAGES[page])
    assert [place for place in places if not (ROOT / place).exists()] == []


def code_of(page: str) -> list[str]:
    """The lines of blocks and the spans between backticks of a page."""
    blocks = re.findall(r"^```.*?\n(.*?)^```", PAGES[page], re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    return [*(line for block in blocks for line in block.splitlines()), *re.findall(r"`([^`\n]+)`", prose)]


def calls_that_cannot_be(code: list[str]) -> Iterator[str]:
    """Lines that call `hopnode` with a command or an option that it does not have."""
    for line in code:
        for call in re.findall(r"(?:^|[\s/(])hopnode((?: +[^|&;#]+)+)", re.sub(r"[\[\]]", "", line)):
            said = [word for word in call.split() if word not in ("--debug", "--version", "--help", "COMMAND")]
            if not said or not re.fullmatch(r"[a-z]+", said[0]):
                continue
            name = said[0] if said[0] in COMMANDS else " ".join(said[:2])
            options = {word.partition("=")[0] for word in said if word.startswith("--")}
            if name not in {*COMMANDS, *GROUPS} or not options <= set(COMMANDS.get(name, [])):
                yield line


@each_page
def test_every_command_and_option_that_a_page_names_is_there(page: str) -> None:
    assert list(calls_that_cannot_be(code_of(page))) == []


def test_every_command_and_option_that_a_message_of_the_code_names_is_there() -> None:
    code = [span for text in SOURCES.values() for span in re.findall(r"`([^`\n]+)`", text)]
    assert sum("hopnode " in span for span in code) >= 10
    assert list(calls_that_cannot_be(code)) == []


def test_a_call_that_cannot_be_is_noticed() -> None:
    wrong = [
        "hopnode serv",
        "$ .venv/bin/hopnode search --colection x",
        "hopnode keys remove ID",
        "hopnode keys list --x",
    ]
    right = [
        "hopnode --debug serve",
        "hopnode COMMAND --help",
        "hopnode keys",
        "see hopnode.db",
        "hopnode worker --role sync",
    ]
    assert list(calls_that_cannot_be([*wrong, *right])) == wrong


@each_page
def test_every_make_target_that_a_page_names_is_there(page: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    said = {target for code in code_of(page) for target in re.findall(r"^(?:\$ )?make ([a-z-]+)", code)}
    assert sorted(said - targets) == []


@each_page
def test_every_setting_that_a_page_names_is_there(page: str) -> None:
    known = {f"HOPNODE_{name.upper()}" for name in fields()}
    assert sorted(set(re.findall(r"HOPNODE_[A-Z_]*[A-Z]", PAGES[page])) - known) == []


def test_every_setting_that_a_message_of_the_code_names_is_there() -> None:
    known = {f"HOPNODE_{name.upper()}" for name in fields()} | {SUPERVISED}
    named = {setting for text in SOURCES.values() for setting in re.findall(r"HOPNODE_[A-Z_]*[A-Z]", text)}
    families = {name for name in named if any(setting.startswith(f"{name}_") for setting in known)}
    assert sorted(named - known - families) == []


def test_the_walk_above_meets_commands_and_groups() -> None:
    assert {"serve", "search", "collections list", "keys revoke"} <= set(COMMANDS)
    assert "--top-k" in COMMANDS["search"]
