"""A process of its own that ingests, edits and deletes the same documents over and over, and keeps their posting lists,
until it is killed.

    python -m support.data.ingest_forever ROOT SEED [CHROMA_URL]

Prints a line for each document that was reported as stored or deleted.
"""

import random
import sys
from pathlib import Path

from hopnode.worker.corpus.records import NewDocument
from hopnode.worker.corpus.sqlite.posting_segments import catch_up_postings
from hopnode.worker.corpus.sqlite.text_store import TextStore
from hopnode.worker.corpus.vectors.chroma import EmbeddedChroma, HttpChroma
from support.data.corpora import CollectionBook, open_corpora


def main() -> None:
    root, seed = Path(sys.argv[1]), int(sys.argv[2])
    vectors = HttpChroma(sys.argv[3]) if len(sys.argv) > 3 else EmbeddedChroma(root / "chroma")
    book = CollectionBook()
    corpus = open_corpora(root, vectors, book, max_chunk_tokens=40).open("w1")
    store = TextStore(root / "workspaces" / "w1" / "corpus.db")
    chance = random.Random(seed)
    print("ready", flush=True)
    while True:
        keys = chance.sample(range(20), 6)
        for key in keys[:4]:
            words = " ".join(f"word{chance.randrange(50)}" for _ in range(chance.randrange(5, 200)))
            document = NewDocument(str(key), text=f"{words}\n\nend{key}", title=f"t{chance.randrange(3)}")
            for outcome in corpus.ingest(book.make(), [document]):
                print(outcome.status, outcome.key, document.text.split()[0] if document.text else "", flush=True)
        corpus.delete(book.make(), [str(key) for key in keys[4:]])
        print("deleted", *keys[4:], flush=True)
        catch_up_postings(store, from_chunks=0, least_tail=1)


if __name__ == "__main__":
    main()
