"""The tools of the node, asked by the client of MCP's own SDK over HTTP."""

from collections.abc import Iterator
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.types import ListToolsResult
from support.node.http_node import HttpNode, Tenant, serve_node
from support.node.mcp_client import ERAS, call, text_of, with_client

from hopnode.node_service.mcp.tools import TOOLS
from hopnode.node_service.schemas.tools import RESULT_CHARACTERS
from hopnode.worker.searches.job import run_search_job

TEXTS = {
    "tower.md": "# Building\n\nThe Anselm Tower was built by the Brook Company in 1911. It is made of brick.",
    "company.md": "The Brook Company was founded by Mira Lindqvist, an engineer from the coast.",
}
QUESTION = "Who founded the company that built the Anselm Tower?"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpNode]:
    with serve_node(tmp_path_factory.mktemp("mcp"), handlers={"search": run_search_job}) as served:
        yield served


@pytest.fixture(scope="module")
def tenant(node: HttpNode) -> Tenant:
    tenant = node.tenant()
    made = tenant.http.post("/v1/collections", json={"name": "handbook", "description": "Towers and companies."})
    assert made.status_code == 201
    for key, text in TEXTS.items():
        assert tenant.put(key, text, url=f"https://example.com/{key}").status_code == 201
    return tenant


def ask(tenant: Tenant, tool: str, era: str = ERAS[1], **arguments: Any) -> tuple[str, Any]:
    """Text and data of a call that succeeded."""
    answer = call(tenant.node.url, tenant.token, tool, era, **arguments)
    assert not answer.is_error, text_of(answer)
    return text_of(answer), answer.structured_content


def refused(tenant: Tenant, tool: str, **arguments: Any) -> str:
    answer = call(tenant.node.url, tenant.token, tool, **arguments)
    assert answer.is_error and answer.structured_content is None
    return text_of(answer)


@pytest.mark.parametrize("era", ERAS)
def test_a_client_learns_of_the_tools_and_how_to_use_them(tenant: Tenant, era: str) -> None:
    async def look(client: Client) -> tuple[ListToolsResult, str | None]:
        return await client.list_tools(), client.instructions

    listed, instructions = with_client(tenant.node.url, tenant.token, look, era)
    assert [tool.name for tool in listed.tools] == [tool.name for tool in TOOLS]
    assert instructions and "cite" in instructions
    for tool in listed.tools:
        assert tool.description and tool.output_schema and tool.annotations
        fields = tool.input_schema["properties"].values()
        assert all(field.get("description") for field in fields), f"{tool.name}: a model must know what it fills in"


@pytest.mark.parametrize("era", ERAS)
def test_a_search_brings_numbered_passages_as_text_and_as_data(tenant: Tenant, era: str) -> None:
    text, data = ask(tenant, "search", era, query=QUESTION, collections=["handbook"])
    assert data["status"] == "succeeded" and data["left_out"] == 0
    assert {passage["key"] for passage in data["passages"]} == set(TEXTS)
    for place, passage in enumerate(data["passages"], 1):
        assert passage["number"] == place
        assert TEXTS[passage["key"]][passage["start"] : passage["end"]] == passage["text"]
        assert f"[{place}] " in text and passage["text"] in text
        assert passage["url"] == f"https://example.com/{passage['key']}" and passage["url"] in text


def test_the_search_is_one_of_the_workspace_that_others_see_too(tenant: Tenant) -> None:
    _, data = ask(tenant, "search", query=QUESTION, collections=["handbook"], top_k=1)
    seen = tenant.http.get(f"/v1/searches/{data['search_id']}").json()
    assert (seen["query"], seen["top_k"], seen["metadata"]) == (QUESTION, 1, {"asked_by": "mcp"})
    assert len(data["passages"]) == 1


@pytest.mark.parametrize("era", ERAS)
def test_a_search_that_was_started_is_got_by_its_id(tenant: Tenant, era: str) -> None:
    text, started = ask(tenant, "start_search", era, query=QUESTION, collections=["handbook"])
    assert "get_search" in text and started["search_id"] in text and started["passages"] == []
    _, found = ask(tenant, "get_search", era, search_id=started["search_id"])
    assert found["status"] == "succeeded" and found["passages"]


def test_a_filter_narrows_a_search(tenant: Tenant) -> None:
    text, data = ask(tenant, "search", query=QUESTION, collections=["handbook"], filter={"team": "nobody"})
    assert data["passages"] == [] and "Nothing was found" in text


def test_a_document_is_read_in_parts_that_join(tenant: Tenant) -> None:
    whole = TEXTS["company.md"]
    text, first = ask(tenant, "read_document", collection="handbook", key="company.md", characters=20)
    assert (first["text"], first["next_start"], first["characters"]) == (whole[:20], 20, len(whole))
    assert "read on with start 20" in text
    _, rest = ask(tenant, "read_document", collection="handbook", key="company.md", start=20)
    assert first["text"] + rest["text"] == whole and rest["next_start"] is None
    _, beyond = ask(tenant, "read_document", collection="handbook", key="company.md", start=10_000)
    assert (beyond["text"], beyond["start"], beyond["end"]) == ("", len(whole), len(whole))


def test_the_collections_are_told_with_their_descriptions(tenant: Tenant) -> None:
    text, data = ask(tenant, "list_collections")
    assert data == {"collections": [{"name": "handbook", "description": "Towers and companies."}], "left_out": 0}
    assert "handbook: Towers and companies." in text


def test_a_long_result_is_cut_to_what_a_model_can_hold_and_says_so(node: HttpNode) -> None:
    tenant = node.tenant()
    tenant.collection()
    for number in range(40):
        words = " ".join(f"ferry{number}word{place}" for place in range(120))
        assert tenant.put(f"{number}.md", f"The ferry number {number} leaves. {words}").status_code == 201
    text, data = ask(tenant, "search", query="When does the ferry leave?", collections=["handbook"], top_k=50)
    assert data["left_out"] > 0 and data["passages"]
    assert sum(len(passage["text"]) for passage in data["passages"]) <= RESULT_CHARACTERS
    assert f"{data['left_out']} more passages did not fit" in text


def test_what_does_not_exist_and_what_is_wrong_is_told_to_the_model(tenant: Tenant) -> None:
    assert "nowhere" in refused(tenant, "search", query="q", collections=["nowhere"])
    assert "query" in refused(tenant, "search", query=" ", collections=["handbook"])
    assert "collections" in refused(tenant, "search", query="q", collections=["handbook", "handbook"])
    assert "mod" in refused(tenant, "search", query="q", collections=["handbook"], mod="agent")
    assert "no job" in refused(tenant, "get_search", search_id="0" * 24)
    assert "gone.md" in refused(tenant, "read_document", collection="handbook", key="gone.md")


def test_an_unknown_tool_is_an_error_of_the_protocol(tenant: Tenant) -> None:
    async def ask(client: Client) -> str:
        with pytest.raises(MCPError) as refusal:
            await client.call_tool("delete_everything", {})
        return str(refusal.value)

    assert "no tool 'delete_everything'" in with_client(tenant.node.url, tenant.token, ask)
