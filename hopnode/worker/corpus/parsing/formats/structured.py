"""JSON and JSON lines as readable lines `path.to.key: value`, a blank line between records; numbers as written."""

import json
from collections.abc import Iterator

from hopnode.worker.corpus.parsing.formats.decode import decode
from hopnode.worker.corpus.parsing.formats.draft import Draft, RawDocument, gather, one_line

_DEEPEST = 60
_TITLES = ("title", "name")


def read_json(raw: RawDocument) -> Draft:
    """One document; what is no valid JSON stays as it is, with a warning."""
    text, warnings = decode(raw.data, raw.charset)
    try:
        value = _load(text)
    except (ValueError, RecursionError):
        return Draft(
            kind="text", parts=(text,), warnings=(*warnings, "The file is not valid JSON; it was read as text.")
        )
    title = (
        next((value[key] for key in _TITLES if isinstance(value.get(key), str)), "") if isinstance(value, dict) else ""
    )
    records = value if isinstance(value, list) else [value]
    return Draft(
        kind="text",
        parts=(gather(_records(records), raw.max_characters),),
        title=one_line(title)[:200],
        warnings=warnings,
    )


def read_jsonl(raw: RawDocument) -> Draft:
    """A record a line; lines that are no valid JSON stay as they are and are counted in a warning."""
    text, warnings = decode(raw.data, raw.charset)
    records: list[object] = []
    broken = 0
    for line in text.split("\n"):
        if not line.strip():
            continue
        try:
            records.append(_load(line))
        except (ValueError, RecursionError):
            records.append(line.strip())
            broken += 1
    if broken:
        warnings = (*warnings, f"{broken} of {len(records)} lines are not valid JSON; they were read as text.")
    return Draft(kind="text", parts=(gather(_records(records), raw.max_characters),), warnings=warnings)


def _load(text: str) -> object:
    """Numbers stay the strings that were written, so that no digit is lost."""
    return json.loads(text, parse_int=str, parse_float=str)


def _records(records: list[object]) -> Iterator[str]:
    for record in records:
        yield from (f"{line}\n" for line in _lines(record, "", 0))
        yield "\n"


def _lines(value: object, path: str, depth: int) -> Iterator[str]:
    if value is None or value == "":
        return
    if depth > _DEEPEST and isinstance(value, dict | list):
        yield _labelled(path, json.dumps(value, ensure_ascii=False))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _lines(item, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list) and all(_is_scalar(item) for item in value):
        yield _labelled(path, ", ".join(_scalar(item) for item in value))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _lines(item, f"{path}[{index}]", depth + 1)
    else:
        yield _labelled(path, _scalar(value))


def _labelled(path: str, text: str) -> str:
    if not path:
        return text
    return f"{path}:\n{text}" if "\n" in text.strip() else f"{path}: {text}"


def _is_scalar(value: object) -> bool:
    return not isinstance(value, dict | list)


def _scalar(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
