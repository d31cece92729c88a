"""Holds what a crawl fetched until the item is asked for; bounded, so that what nobody asks for in time is fetched again."""

from collections import OrderedDict

from hopnode.connectors.base import Content, Fetched


class Spool:
    """Outcomes by item id; when their bytes exceed `most_bytes`, the oldest go."""

    def __init__(self, most_bytes: int = 64_000_000) -> None:
        self._most_bytes = most_bytes
        self._held: OrderedDict[str, Fetched] = OrderedDict()
        self._bytes = 0

    def put(self, item_id: str, fetched: Fetched) -> None:
        """Keeps the outcome; a single one that is over the limit is not kept at all."""
        self.take(item_id)
        self._held[item_id] = fetched
        self._bytes += _size(fetched)
        while self._bytes > self._most_bytes:
            self._bytes -= _size(self._held.popitem(last=False)[1])

    def take(self, item_id: str) -> Fetched | None:
        """Hands the outcome over and forgets it."""
        fetched = self._held.pop(item_id, None)
        if fetched is not None:
            self._bytes -= _size(fetched)
        return fetched


def _size(fetched: Fetched) -> int:
    return len(fetched.data) if isinstance(fetched, Content) else 0
