"""Hopnode as a retriever of LlamaIndex (`pip install 'hopnode-client[llamaindex]'`); knows llama-index-core only."""

from collections.abc import Sequence
from typing import Unpack

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode

from hopnode_client.asynchronous.client import AsyncHopnode
from hopnode_client.errors import Misuse
from hopnode_client.options import SearchOptions
from hopnode_client.results import Passage, Search
from hopnode_client.synchronous.client import Hopnode


class HopnodeRetriever(BaseRetriever):
    """Passages of a search as nodes with scores, best first: the citation in `metadata`, the document as their source.

    `retrieve` uses `client`, `aretrieve` uses `async_client`. Options are those of `Hopnode.search`.
    """

    def __init__(
        self,
        collection: str | Sequence[str],
        *,
        client: Hopnode | None = None,
        async_client: AsyncHopnode | None = None,
        timeout: float = 300.0,
        **options: Unpack[SearchOptions],
    ) -> None:
        super().__init__()
        self._collection, self._timeout, self._options = collection, timeout, options
        self._client, self._async_client = client, async_client

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self._client is None:
            raise Misuse("This retriever has no `client`.", "Give `client=Hopnode(…)`, or use `aretrieve`.")
        query = query_bundle.query_str
        return _nodes(self._client.search(query, self._collection, timeout=self._timeout, **self._options))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self._async_client is None:
            raise Misuse("This retriever has no `async_client`.", "Give `async_client=AsyncHopnode(…)`.")
        query = query_bundle.query_str
        return _nodes(await self._async_client.search(query, self._collection, timeout=self._timeout, **self._options))


def _nodes(search: Search) -> list[NodeWithScore]:
    return [NodeWithScore(node=_node(passage), score=passage.score) for passage in search.passages]


def _node(passage: Passage) -> TextNode:
    return TextNode(
        id_=passage.chunk_id,
        text=passage.text,
        metadata=passage.citation,
        start_char_idx=passage.start,
        end_char_idx=passage.end,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=passage.document_id)},
    )
