"""The retriever for LangChain, in the real langchain-core, on a running node."""

import asyncio

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableLambda
from running_node import RunningNode

from hopnode_client import AsyncHopnode, Hopnode, Misuse, NotFound, Passage
from hopnode_client.langchain import HopnodeRetriever

QUESTION = "Who founded the company that built the tower?"


def test_passages_are_documents_with_their_citations(node: RunningNode) -> None:
    with Hopnode(node.url, node.key) as client:
        retriever = HopnodeRetriever(client=client, collection="facts", options={"mode": "agent", "top_k": 2})
        found = retriever.invoke(QUESTION)
        assert {document.metadata["key"] for document in found} == {"tower.md", "company.md"}
        for place, document in enumerate(found, 1):
            text = client.documents.get("facts", document.metadata["key"], text=True).text or ""
            assert text[document.metadata["start"] : document.metadata["end"]] == document.page_content
            assert document.metadata["rank"] == place and document.metadata["team"] == "blue"
            assert document.id == document.metadata["chunk_id"]
        assert node.key.strip() not in repr(retriever)


def test_it_is_a_link_of_a_chain_and_tells_callbacks_of_errors(node: RunningNode) -> None:
    class Errors(BaseCallbackHandler):
        def __init__(self) -> None:
            self.seen: list[BaseException] = []

        def on_retriever_error(self, error: BaseException, **_: object) -> None:
            self.seen.append(error)

    errors = Errors()
    with Hopnode(node.url, node.key) as client:
        chain = HopnodeRetriever(client=client, collection=["facts"]) | RunnableLambda(len)
        assert chain.invoke("Where is the harbour?") > 0
        with pytest.raises(NotFound):
            HopnodeRetriever(client=client, collection="nowhere").invoke("Where?", config={"callbacks": [errors]})
    assert [type(error) for error in errors.seen] == [NotFound]


def test_it_is_asynchronous_with_either_client_and_cancels_with_its_task(node: RunningNode) -> None:
    async def play() -> None:
        async with AsyncHopnode(node.url, node.key) as client:
            retriever = HopnodeRetriever(async_client=client, collection="facts")
            assert (await retriever.ainvoke("Where is the harbour?"))[0].metadata["key"] == "harbour.md"
            slow = HopnodeRetriever(
                async_client=client, collection="facts", options={"mode": "agent", "profile": "generic"}
            )
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(slow.ainvoke("Why, LangChain?"), 0.5)
            newest = await anext(aiter(client.list_searches(page_size=1)))
            assert (newest.query, newest.status) == ("Why, LangChain?", "cancelled")
            with pytest.raises(Misuse, match="no `client`"):
                retriever.invoke("Where?")
        with Hopnode(node.url, node.key) as blocking:
            in_a_thread = HopnodeRetriever(client=blocking, collection="facts")
            assert (await in_a_thread.ainvoke("Where is the harbour?"))[0].metadata["key"] == "harbour.md"

    asyncio.run(play())


def test_the_citation_wins_over_metadata_of_the_same_name() -> None:
    passage = Passage(
        rank=1,
        score=0.5,
        document_id="d",
        chunk_id="c",
        key="a.md",
        text="x",
        start=0,
        end=1,
        metadata={"key": "b", "n": 1},
    )
    assert passage.citation["key"] == "a.md" and passage.citation["n"] == 1 and passage.citation["source"] == "a.md"
