"""Turns folders and files into question sets: our JSON Lines, BEIR, SQuAD's JSON, and a CSV of one's own questions.

`docs/evaluation.md` describes the formats. Errors are `InvalidRequest` with the file, the line and the field.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hopnode.worker.errors import InvalidRequest
from hopnode.worker.evaluation.dataset import Dataset, Gold, GoldSpan, Question, Text
from hopnode.worker.evaluation.json_lines import Record, json_lines, table_lines, whole_json

KEY_SEPARATOR = "|"
"""Between the document keys of a CSV's column `gold`."""


def load(path: Path, *, language: str | None = None, split: str | None = None) -> Dataset:
    """The question set at `path`. Its files tell which form it has.

    `language` keeps the lines whose field `lang` says so; `split` names the file in `qrels` of a BEIR folder.
    """
    if not path.exists():
        raise InvalidRequest(f"There is no file or folder {path}.")
    if path.is_file():
        dataset = _from_file(path)
    elif (path / "qrels").is_dir():
        dataset = _beir(path, split)
    elif _find(path, "queries.jsonl"):
        dataset = _json_lines(path, language)
    else:
        dataset = _from_file(_only_json(path))
        dataset = Dataset(path.resolve().name, dataset.questions, dataset.gold, dataset.documents)
    if not dataset.questions:
        raise InvalidRequest(f"{path} holds no question.")
    return dataset


def _from_file(path: Path) -> Dataset:
    names = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    kind = names[-1] if names else ""
    if kind == ".csv":
        return _csv(path)
    if kind == ".json":
        return _squad(path)
    raise InvalidRequest(
        f"{path} is no question set: give a folder with corpus.jsonl and queries.jsonl, a BEIR folder, a JSON file in "
        "the form of SQuAD, or a CSV file with the columns question and gold."
    )


def _only_json(folder: Path) -> Path:
    found = sorted([*folder.glob("*.json"), *folder.glob("*.json.gz")])
    if len(found) != 1:
        raise InvalidRequest(
            f"{folder} holds no question set: it has neither queries.jsonl (or .jsonl.gz), nor a folder qrels, nor "
            "exactly one .json file."
        )
    return found[0]


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _needed(folder: Path, name: str) -> Path:
    if path := _find(folder, name):
        return path
    raise InvalidRequest(f"{folder} has no {name} (or {name}.gz).")


def _documents(path: Path, records: Iterable[Record]) -> tuple[Text, ...]:
    documents: dict[str, Text] = {}
    for record in records:
        document = Text(record.filled("id", "_id"), record.text("title", default=""), record.text("text"))
        if document.id in documents:
            raise record.wrong(f"the id {document.id!r} stood on an earlier line already")
        documents[document.id] = document
    if not documents:
        raise InvalidRequest(f"{path.name} holds no document.")
    return tuple(documents.values())


# --- folders of corpus.jsonl and queries.jsonl --------------------------------------------------------------------


def _json_lines(folder: Path, language: str | None) -> Dataset:
    corpus = _needed(folder, "corpus.jsonl")
    documents = _documents(corpus, _in_language(corpus, language))
    questions: list[Question] = []
    gold: dict[str, Gold] = {}
    for record in _in_language(_needed(folder, "queries.jsonl"), language):
        question = Question(record.filled("id", "_id"), record.filled("question", "text"))
        if question.id in gold:
            raise record.wrong(f"the id {question.id!r} stood on an earlier line already")
        questions.append(question)
        gold[question.id] = _gold(record)
    name = folder.resolve().name + (f"-{language}" if language else "")
    return Dataset(name, tuple(questions), gold, documents)


def _in_language(path: Path, language: str | None) -> list[Record]:
    records = list(json_lines(path))
    if language is None:
        return records
    known = sorted({str(record.fields["lang"]) for record in records if record.fields.get("lang")})
    if language not in known:
        raise InvalidRequest(
            f"{path.name} has no line in the language {language!r}; it has: {', '.join(known) or 'none'}."
        )
    return [record for record in records if record.fields.get("lang") == language]


def _gold(record: Record) -> Gold:
    documents: list[str] = record.list_of("gold", str, required=True)
    if not documents:
        raise record.wrong("`gold` names no document")
    hops: list[str] = []
    for step in record.list_of("steps", dict):
        if not isinstance(step.get("gold"), str):
            raise record.wrong("every entry of `steps` must name its document in `gold`")
        hops.append(step["gold"])
    spans = tuple(_span(record, span) for span in record.list_of("gold_spans", list))
    return Gold(dict.fromkeys(documents, 1), tuple(hops), spans)


def _span(record: Record, span: list[Any]) -> GoldSpan:
    match span:
        case [str(document), int(start), int(end)] if 0 <= start < end:
            return GoldSpan(document, start, end)
        case _:
            raise record.wrong("every entry of `gold_spans` must be [document, start, end] with start below end")


# --- BEIR -----------------------------------------------------------------------------------------------------------


def _beir(folder: Path, split: str | None) -> Dataset:
    corpus = _needed(folder, "corpus.jsonl")
    documents = _documents(corpus, json_lines(corpus))
    texts: dict[str, str] = {}
    for record in json_lines(_needed(folder, "queries.jsonl")):
        texts[record.filled("_id", "id")] = record.filled("text", "question")
    gains: dict[str, dict[str, int]] = {}
    for record in table_lines(_qrels(folder, split), separator="\t", columns=("query-id", "corpus-id", "score")):
        question, document = record.filled("query-id"), record.filled("corpus-id")
        if question not in texts:
            raise record.wrong(f"there is no query {question!r} in queries.jsonl")
        try:
            gain = int(record.text("score"))
        except ValueError as error:
            raise record.wrong("`score` must be a whole number") from error
        if gain > 0:
            gains.setdefault(question, {})[document] = gain
    questions = tuple(Question(one, text) for one, text in texts.items() if one in gains)
    return Dataset(folder.resolve().name, questions, {one.id: Gold(gains[one.id]) for one in questions}, documents)


def _qrels(folder: Path, split: str | None) -> Path:
    found = {path.stem: path for path in sorted((folder / "qrels").glob("*.tsv"))}
    wanted = split or ("test" if "test" in found or len(found) != 1 else next(iter(found)))
    if wanted in found:
        return found[wanted]
    names = ", ".join(found) or "none"
    raise InvalidRequest(f"{folder / 'qrels'} has no {wanted}.tsv; there are: {names}. Choose one with --split.")


# --- SQuAD ----------------------------------------------------------------------------------------------------------


def _squad(path: Path) -> Dataset:
    """Every paragraph is a document under the title of its article, and the gold of the questions below it."""
    documents: list[Text] = []
    questions: list[Question] = []
    gold: dict[str, Gold] = {}
    for number, article in enumerate(Record(path.name, _object(path)).list_of("data", dict, required=True), start=1):
        title = Record(f"{path.name}, article {number}", article).text("title", default="")
        for place, paragraph in _below(path, f"article {number}", article, "paragraphs"):
            document = Text(f"p{len(documents):05}", title, place.filled("context"))
            documents.append(document)
            for asked, _ in _below(path, place.place.partition(", ")[2], paragraph, "qas"):
                question = Question(asked.filled("id"), asked.filled("question"))
                if question.id in gold:
                    raise asked.wrong(f"the id {question.id!r} was there before")
                questions.append(question)
                gold[question.id] = Gold({document.id: 1}, spans=_answer(asked, document))
    return Dataset(path.name.partition(".")[0], tuple(questions), gold, tuple(documents))


def _object(path: Path) -> dict[str, Any]:
    value = whole_json(path)
    if not isinstance(value, dict):
        raise InvalidRequest(f"{path.name}: the file must hold one JSON object with `data`.")
    return value  # pyright: ignore[reportUnknownVariableType]


def _below(path: Path, place: str, parent: dict[str, Any], name: str) -> Iterable[tuple[Record, dict[str, Any]]]:
    for number, child in enumerate(Record(f"{path.name}, {place}", parent).list_of(name, dict, required=True), start=1):
        yield Record(f"{path.name}, {place}, {name[:-1]} {number}", child), child


def _answer(asked: Record, document: Text) -> tuple[GoldSpan, ...]:
    """Where the first answer stands; the others are other annotators' ways to say the same."""
    for answer in asked.list_of("answers", dict)[:1]:
        start, text = answer.get("answer_start"), answer.get("text")
        if isinstance(start, int) and isinstance(text, str) and text:
            return (GoldSpan(document.id, start, start + len(text)),)
    return ()


# --- a CSV of one's own -------------------------------------------------------------------------------------------


def _csv(path: Path) -> Dataset:
    """Questions over a collection that exists: columns `question` and `gold`, and `id` if wanted."""
    questions: list[Question] = []
    gold: dict[str, Gold] = {}
    for number, record in enumerate(table_lines(path, separator=",", columns=("question", "gold")), start=1):
        question = Question(record.text("id", default=f"q{number}"), record.filled("question").strip())
        keys = [key.strip() for key in record.text("gold").split(KEY_SEPARATOR) if key.strip()]
        if not keys:
            raise record.wrong("`gold` names no document")
        if question.id in gold:
            raise record.wrong(f"the id {question.id!r} stood on an earlier line already")
        questions.append(question)
        gold[question.id] = Gold(dict.fromkeys(keys, 1))
    return Dataset(path.name.partition(".")[0], tuple(questions), gold)
