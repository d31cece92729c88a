"""The stored names of documents: what a mention in another text is looked up by. Runs inside the caller's transaction.

Names go with their document: its deletion removes them, and every change of it writes them anew.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from hopnode.worker.corpus.names import MOST_SHARERS, lead_of, names_of
from hopnode.worker.corpus.sqlite.text_store import Connection


@dataclass(frozen=True)
class NamedRow:
    """The chunk at `row` opens a document that goes by `phrase` (index terms with spaces between)."""

    phrase: str
    row: int
    quality: float


def put_names(connection: Connection, number: int, document_id: str, title: str, text: str) -> None:
    """Replaces the names of a document."""
    connection.execute("DELETE FROM name WHERE document_id = ?", (document_id,))
    connection.executemany(
        "INSERT INTO name (collection, lead, phrase, document_id, quality) VALUES (?, ?, ?, ?, ?)",
        [(number, lead_of(one.terms), one.phrase, document_id, one.quality) for one in names_of(title, text)],
    )


def known_phrases(connection: Connection, number: int, leads: Iterable[str]) -> list[str]:
    """The phrases of names that begin with one of the leads. One that more than
    `MOST_SHARERS` documents go by is left out."""
    statement = (
        "SELECT json_group_array(phrase) FROM (SELECT n.phrase FROM json_each(?) j "
        "CROSS JOIN name n ON n.collection = ? AND n.lead = j.value GROUP BY n.lead, n.phrase HAVING count(*) <= ?)"
    )
    (found,) = connection.execute(statement, (json.dumps(list(leads)), number, MOST_SHARERS)).fetchone()
    return json.loads(found)


def rows_named(connection: Connection, number: int, phrases: Iterable[str]) -> list[NamedRow]:
    """The documents that go by one of the phrases, each with its first chunk; a phrase that more than `MOST_SHARERS` of
    them go by is left out."""
    statement = (
        "SELECT json_group_array(json_array(n.phrase, k.row, n.quality)) FROM json_each(?) j "
        "CROSS JOIN name n ON n.collection = ? AND n.lead = j.value AND n.phrase = j.key "
        "CROSS JOIN chunk k ON k.document_id = n.document_id AND k.position = 0 "
        "WHERE (SELECT count(*) FROM (SELECT 1 FROM name m WHERE m.collection = n.collection AND m.lead = n.lead "
        "AND m.phrase = n.phrase LIMIT ?)) <= ?"
    )
    wanted = {phrase: lead_of(phrase.split(" ")) for phrase in phrases}
    limits = MOST_SHARERS + 1, MOST_SHARERS
    (found,) = connection.execute(statement, (json.dumps(wanted), number, *limits)).fetchone()
    return [NamedRow(*row) for row in json.loads(found)]
