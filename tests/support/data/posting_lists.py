"""What must be true of posting lists whatever happened before."""

from collections import Counter

from hopnode.worker.corpus.analyzer import analyze
from hopnode.worker.corpus.sqlite.lexical import chunk_texts
from hopnode.worker.corpus.sqlite.postings import PostingLists
from hopnode.worker.corpus.sqlite.reading import collection_row
from hopnode.worker.corpus.sqlite.text_store import TextStore


def agrees_with_the_text_store(store: TextStore, lists: PostingLists, collection: str = "c1") -> None:
    """Each stored chunk is in one segment or in the tail, and is found by each of its terms; nothing else is found."""
    with store.read() as connection:
        row = collection_row(connection, collection)
        if row is None or not row.posted_row:
            return
        rows = [one[0] for one in connection.execute("SELECT row FROM chunk WHERE collection = ?", (row.number,))]
        found = lists.get(connection, row)
        if found is None:
            assert connection.execute("SELECT count(*) FROM segment").fetchone()[0] == 0
            return
        places = Counter(found.layout.rows.tolist()) + Counter(
            one for one in found.tail.lengths if one > row.posted_row
        )
        assert all(places[one] == 1 for one in rows)
        texts = {one: set(analyze(text)) for one, text in chunk_texts(connection, rows).items()}
        for term in set().union(*texts.values()):
            assert set(found.ranked([term])) == {one for one, terms in texts.items() if term in terms}
