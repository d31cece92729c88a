"""The retriever for LlamaIndex, in the real llama-index-core, on a running node."""

import asyncio

import pytest
from llama_index.core.schema import MetadataMode, NodeRelationship, QueryBundle, RelatedNodeInfo, TextNode
from running_node import RunningNode

from hopnode_client import AsyncHopnode, Hopnode, Misuse
from hopnode_client.llamaindex import HopnodeRetriever

QUESTION = "Who founded the company that built the tower?"


def test_passages_are_nodes_with_scores_and_citations(node: RunningNode) -> None:
    with Hopnode(node.url, node.key) as client:
        retriever = HopnodeRetriever("facts", client=client, mode="agent", top_k=2)
        found = retriever.retrieve(QUESTION)
        assert {scored.node.metadata["key"] for scored in found} == {"tower.md", "company.md"}
        for scored in found:
            assert isinstance(scored.node, TextNode)
            source = scored.node.relationships[NodeRelationship.SOURCE]
            assert isinstance(source, RelatedNodeInfo)
            text = client.documents.get("facts", scored.node.metadata["key"], text=True).text or ""
            assert text[scored.node.start_char_idx : scored.node.end_char_idx] == scored.node.get_content(
                MetadataMode.NONE
            )
            assert (
                scored.score == scored.node.metadata["score"]
                and scored.node.node_id == scored.node.metadata["chunk_id"]
            )
            assert source.node_id == scored.node.metadata["document_id"]
        assert retriever.retrieve(QueryBundle("Where is the harbour?"))[0].node.metadata["key"] == "harbour.md"


def test_it_is_asynchronous_and_cancels_with_its_task(node: RunningNode) -> None:
    async def play() -> None:
        async with AsyncHopnode(node.url, node.key) as client:
            retriever = HopnodeRetriever(["facts"], async_client=client)
            assert (await retriever.aretrieve("Where is the harbour?"))[0].node.metadata["key"] == "harbour.md"
            slow = HopnodeRetriever("facts", async_client=client, mode="agent", profile="generic")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(slow.aretrieve("Why, LlamaIndex?"), 0.5)
            newest = await anext(aiter(client.list_searches(page_size=1)))
            assert (newest.query, newest.status) == ("Why, LlamaIndex?", "cancelled")
            with pytest.raises(Misuse, match="no `client`"):
                retriever.retrieve("Where?")

    asyncio.run(play())


def test_without_the_right_client_it_says_what_to_give(node: RunningNode) -> None:
    with Hopnode(node.url, node.key) as client, pytest.raises(Misuse, match="async_client"):
        asyncio.run(HopnodeRetriever("facts", client=client).aretrieve("Where?"))
