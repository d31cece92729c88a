"""Hopnode as a retriever of LangChain (`pip install 'hopnode-client[langchain]'`); knows langchain-core only."""

from typing import Any

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import Field

from hopnode_client.asynchronous.client import AsyncHopnode
from hopnode_client.errors import Misuse
from hopnode_client.results import Search
from hopnode_client.synchronous.client import Hopnode


class HopnodeRetriever(BaseRetriever):
    """Passages of a search as documents, best first: the citation in `metadata`, the chunk's id as `id`.

    `options` are those of `Hopnode.search`. `ainvoke` uses `async_client`; without one it runs `client` in a thread,
    which a cancelled task cannot stop.
    """

    client: Hopnode | None = Field(default=None, exclude=True, repr=False)
    async_client: AsyncHopnode | None = Field(default=None, exclude=True, repr=False)
    collection: str | list[str]
    timeout: float = 300.0
    options: dict[str, Any] = Field(default_factory=dict[str, Any])

    def _get_relevant_documents(
        self,
        query: str,
        *,
        run_manager: CallbackManagerForRetrieverRun,  # noqa: ARG002 - the base class calls with it
    ) -> list[Document]:
        if self.client is None:
            raise Misuse("This retriever has no `client`.", "Give `client=Hopnode(…)`, or use `ainvoke`.")
        return _documents(self.client.search(query, self.collection, timeout=self.timeout, **self.options))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        if self.async_client is None:
            return await super()._aget_relevant_documents(query, run_manager=run_manager)
        found = await self.async_client.search(query, self.collection, timeout=self.timeout, **self.options)
        return _documents(found)


def _documents(search: Search) -> list[Document]:
    return [
        Document(id=passage.chunk_id, page_content=passage.text, metadata=passage.citation)
        for passage in search.passages
    ]
