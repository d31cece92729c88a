"""The options of the command `eval`, each with its bounds and its line of help. What they mean together is for the command."""

from pathlib import Path
from typing import Annotated, Literal, TypeAlias

from typer import Argument, Option

DatasetPath: TypeAlias = Annotated[Path, Argument(help="A folder or file with questions and what is right for each.")]
Mode: TypeAlias = Annotated[
    Literal["auto", "one_shot", "agent"], Option(help="One hybrid query, the agent, or the node's choice.")
]
Profile: TypeAlias = Annotated[
    Literal["offline", "generic", "context-1", "context-1-chat"],
    Option(help="Who drives the agent: no model, or a kind of model behind the chat endpoint."),
]
TopK: TypeAlias = Annotated[int, Option(min=1, max=100, help="Passages that each search returns.")]
NoTitles: TypeAlias = Annotated[bool, Option("--no-titles", help="Ingest without titles, as if nobody had given any.")]
Language: TypeAlias = Annotated[str | None, Option("--lang", help="Only lines whose field `lang` says so.")]
Split: TypeAlias = Annotated[str | None, Option(help="Which qrels of a BEIR folder; `test` where there are more.")]
Limit: TypeAlias = Annotated[int | None, Option(min=1, help="Ask at most so many questions, drawn with the seed.")]
Seed: TypeAlias = Annotated[int, Option(min=0, help="Of all that is drawn: questions, order, intervals.")]
Embedder: TypeAlias = Annotated[str | None, Option(help="`minilm`, `use` or `http`; otherwise the node's choice.")]
DataDir: TypeAlias = Annotated[
    Path | None, Option(help="Work in this data folder and keep it; otherwise in a temporary one.")
]
CollectionName: TypeAlias = Annotated[
    str | None, Option(help="Ask this collection as it is, of --data-dir or --node; gold names its keys.")
]
OnNode: TypeAlias = Annotated[
    bool, Option("--node", help="Have the running node ask its own --collection, over its API.")
]
ReportFile: TypeAlias = Annotated[Path | None, Option("--json", help="Write the report to this file.")]
TrecFolder: TypeAlias = Annotated[Path | None, Option(help="Write run and qrels files into this folder.")]
CompareFile: TypeAlias = Annotated[
    Path | None, Option(help="Compare, question by question, with a report written by --json.")
]
