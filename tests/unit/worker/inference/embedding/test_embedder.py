import gzip
import json
import threading
from pathlib import Path

import numpy as np
import pytest
from support.servers.embeddings_server import EmbeddingsServer

from hopnode.worker.errors import ConfigurationError, ModelRefused, ModelUnavailable
from hopnode.worker.inference.embedding.embedder import Embedder, Embedders, word_piece_tokenizer
from hopnode.worker.inference.embedding.http_embedder import HttpEmbedder

pytestmark = pytest.mark.slow

PAIRS = [
    ("how do I reset my password", "Account recovery: follow the link in the mail if you forgot your login"),
    ("refund for a damaged item", "Goods that arrive broken are reimbursed within thirty days"),
    ("symptoms of diabetes", "Frequent urination, thirst and weight loss point to high blood sugar"),
]
KOREAN_PAIRS = [
    ("비밀번호를 재설정하는 방법", "계정 복구: 로그인 정보를 잊은 경우 메일의 안내를 따르세요"),
    ("파손된 상품 환불", "깨진 상태로 도착한 물건은 30일 안에 돌려드립니다"),
    ("회사는 언제 설립되었나", "두 명의 엔지니어가 1987년에 창업했다"),
]


def nearest(embedder: Embedder, pairs: list[tuple[str, str]]) -> list[int]:
    asked = embedder.embed([question for question, _ in pairs])
    answers = embedder.embed([answer for _, answer in pairs])
    return [int(index) for index in (asked @ answers.T).argmax(1)]


@pytest.fixture(scope="module")
def embedders() -> Embedders:
    return Embedders()


@pytest.mark.parametrize(("name", "dimension"), [("minilm", 384), ("use", 512)])
def test_a_local_embedder_gives_unit_rows_in_the_order_of_the_texts(
    embedders: Embedders, name: str, dimension: int
) -> None:
    embedder = embedders.get(name)
    texts = ["A short text.", "word " * 400, "Another one, a little longer than the first.", "x"]
    rows = embedder.embed(texts)
    assert rows.shape == (4, dimension) and rows.dtype == np.float32
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-3)
    alone = np.array([embedder.embed_query(text) for text in texts])
    assert np.all((rows * alone).sum(1) > 0.999)


def test_minilm_finds_english_paraphrases(embedders: Embedders) -> None:
    assert nearest(embedders.get("minilm"), PAIRS) == [0, 1, 2]


def test_use_finds_english_and_korean_paraphrases(embedders: Embedders) -> None:
    assert nearest(embedders.get("use"), PAIRS) == [0, 1, 2]
    assert nearest(embedders.get("use"), KOREAN_PAIRS) == [0, 1, 2]


@pytest.mark.parametrize("name", ["minilm", "use"])
def test_empty_texts_and_no_texts_are_answered(embedders: Embedders, name: str) -> None:
    embedder = embedders.get(name)
    assert embedder.embed([]).shape == (0, embedder.dimension)
    assert np.isfinite(embedder.embed(["", "  ", "\n"])).all()


@pytest.mark.parametrize("name", ["minilm", "use"])
def test_threads_share_one_model_and_get_their_own_answers(embedders: Embedders, name: str) -> None:
    texts = [f"{topic} number {index}" for index, topic in enumerate(["whales", "taxes", "glaciers", "violins"])]
    alone = [embedders.get(name).embed_query(text) for text in texts]
    answers: dict[int, np.ndarray] = {}

    def ask(index: int) -> None:
        for _ in range(5):
            answers[index] = embedders.get(name).embed_query(texts[index])

    threads = [threading.Thread(target=ask, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(float(answers[index] @ alone[index]) > 0.999 for index in range(4))


def test_the_word_pieces_are_those_of_bert() -> None:
    # Ids read from the tokenizer that all-MiniLM-L6-v2 is published with.
    tokenizer = word_piece_tokenizer()
    assert tokenizer.encode("Unbelievable café, 東京!").ids == [101, 23653, 7668, 1010, 1879, 1755, 999, 102]
    assert len(tokenizer.encode("word " * 1000).ids) == 256


def test_a_model_is_loaded_once_for_all(embedders: Embedders) -> None:
    assert embedders.get("minilm") is Embedders().get("minilm")


@pytest.mark.parametrize(
    ("texts", "chosen"),
    [
        (["The quick brown fox jumps over the lazy dog."], "minilm"),
        (
            ["István Szabó, born in Budapest, is a Hungarian film director and " + "wrote many screenplays " * 40],
            "minilm",
        ),
        (["데이터베이스에서 검색 엔진을 설치하는 방법"], "use"),
        (["Die Straße führt über die Brücke, und schön ist sie für Fußgänger."], "use"),
        (["12345 67890"], "use"),
    ],
)
def test_auto_takes_minilm_for_english_and_use_for_the_rest(
    embedders: Embedders, texts: list[str], chosen: str
) -> None:
    assert embedders.choose(texts) == chosen


def test_a_configured_embedder_is_chosen_whatever_the_texts_are() -> None:
    assert Embedders("use").choose(["plain English"]) == "use"
    assert Embedders("http", url="http://127.0.0.1:1/v1", model="m").choose(["plain English"]) == "http:m"


def test_an_embedder_that_the_node_lacks_is_named_with_what_to_set() -> None:
    with pytest.raises(ConfigurationError, match="HOPNODE_EMBEDDER_URL"):
        Embedders().get("http:bge-m3")
    with pytest.raises(ConfigurationError, match="HOPNODE_EMBEDDER_MODEL"):
        Embedders("http").choose(["text"])


@pytest.fixture
def server():
    with EmbeddingsServer() as running:
        yield running


@pytest.fixture
def remote(server: EmbeddingsServer):
    embedder = HttpEmbedder(server.url, "m", first_pause_seconds=0.001, timeout_seconds=0.5)
    yield embedder
    embedder.close()


def test_http_learns_the_dimension_and_keeps_the_order(server: EmbeddingsServer, remote: HttpEmbedder) -> None:
    assert remote.id == "http:m"
    assert remote.dimension == 3
    rows = remote.embed(["a", "bb", "ccc"])
    assert rows.shape == (3, 3)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1)
    assert np.allclose(rows[1], remote.embed_query("bb"))
    assert server.requests[-1]["model"] == "m"


def test_http_splits_many_texts_over_several_requests(server: EmbeddingsServer, remote: HttpEmbedder) -> None:
    assert remote.embed([f"text {index}" for index in range(150)]).shape == (150, 3)
    assert [len(request["input"]) for request in server.requests] == [64, 64, 22]


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_http_tries_again_when_that_can_help(server: EmbeddingsServer, remote: HttpEmbedder, status: int) -> None:
    server.answers = [status, status, status]
    assert remote.embed(["a"]).shape == (1, 3)
    assert len(server.requests) == 4


def test_http_gives_up_after_four_tries_and_sooner_for_a_query(server: EmbeddingsServer, remote: HttpEmbedder) -> None:
    server.answers = [503] * 10
    with pytest.raises(ModelUnavailable, match="503") as caught:
        remote.embed(["a"])
    assert caught.value.retryable
    assert len(server.requests) == 4
    with pytest.raises(ModelUnavailable):
        remote.embed_query("a")
    assert len(server.requests) == 6


def test_http_waits_as_long_as_the_server_asks(server: EmbeddingsServer) -> None:
    pauses: list[float] = []
    embedder = HttpEmbedder(server.url, "m", pause=pauses.append)
    server.answers = [(429, {"retry-after": "7"}), (429, {"retry-after": "900"})]
    embedder.embed(["a"])
    embedder.close()
    assert pauses == [7.0, 20.0]


@pytest.mark.parametrize(("status", "hint"), [(401, "API_KEY"), (404, "EMBEDDER_MODEL"), (400, "400"), (422, "422")])
def test_http_does_not_repeat_what_was_refused(
    server: EmbeddingsServer, remote: HttpEmbedder, status: int, hint: str
) -> None:
    server.answers = [status]
    with pytest.raises(ModelRefused, match=hint):
        remote.embed_query("a")
    assert len(server.requests) == 1


def test_http_refuses_answers_that_are_no_vectors(server: EmbeddingsServer, remote: HttpEmbedder) -> None:
    server.answers = [b"<html>", b'{"data": []}', b'{"data": [{"index": 0, "embedding": [1, 2]}]}']
    with pytest.raises(ModelRefused, match="no list of vectors"):
        remote.embed_query("a")
    with pytest.raises(ModelRefused, match="one vector"):
        remote.embed_query("a")
    assert remote.dimension == 2
    with pytest.raises(ModelRefused, match="changed its dimension"):
        remote.embed_query("a")


def test_http_says_what_happened_when_nobody_answers() -> None:
    embedder = HttpEmbedder("http://127.0.0.1:9/v1", "m", first_pause_seconds=0.001)
    with pytest.raises(ModelUnavailable, match="cannot be reached"):
        embedder.embed_query("a")
    embedder.close()


def test_http_does_not_wait_for_ever(server: EmbeddingsServer) -> None:
    embedder = HttpEmbedder(server.url, "m", first_pause_seconds=0.001, timeout_seconds=0.05)
    server.hang = True
    with pytest.raises(ModelUnavailable, match="in time"):
        embedder.embed_query("a")
    embedder.close()


def test_the_key_is_sent_and_never_told(server: EmbeddingsServer) -> None:
    from pydantic import SecretStr

    embedder = HttpEmbedder(server.url, "m", SecretStr("sk-very-secret"))
    embedder.embed_query("a")
    assert server.headers[-1]["authorization"] == "Bearer sk-very-secret"
    server.answers = [401]
    with pytest.raises(ModelRefused) as caught:
        embedder.embed_query("a")
    embedder.close()
    assert "sk-very-secret" not in str(caught.value)


def test_the_sample_of_the_demo_is_taken_for_english(embedders: Embedders) -> None:
    sample = Path("hopnode/node_service/commands/demo/data/2wiki-sample/corpus.jsonl.gz")
    with gzip.open(sample, "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for line, _ in zip(lines, range(20), strict=False)]
    assert embedders.choose(texts) == "minilm"
