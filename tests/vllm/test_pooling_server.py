"""The clients of embeddings and rerankers against a real vLLM server with a small BERT of random weights."""

import numpy as np
import pytest
from support.vllm.vllm_server import VllmServer

from hopnode.worker.errors import ModelRefused
from hopnode.worker.inference.embedding.http_embedder import HttpEmbedder
from hopnode.worker.inference.reranker import HttpReranker

pytestmark = pytest.mark.vllm

TEXTS = ["Oslo lies on a fjord.", "A film about trains.", "Anna Berg was born in Oslo."]


def test_embeddings_are_unit_rows_of_one_length(bert: VllmServer) -> None:
    embedder = HttpEmbedder(bert.url, "context-1")
    rows = embedder.embed(TEXTS)
    assert rows.shape == (3, embedder.dimension)
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-3)
    assert np.allclose(embedder.embed_query(TEXTS[0]), rows[0], atol=2e-2)
    embedder.close()


def test_score_and_rerank_say_the_same_of_the_same_texts(bert: VllmServer) -> None:
    query = "Where was she born?"
    score = HttpReranker("score", bert.root, "context-1").score(query, TEXTS)
    rerank = HttpReranker("rerank", bert.root, "context-1").score(query, TEXTS)
    assert len(score) == 3
    assert rerank == pytest.approx(score, abs=2e-2)


def test_the_text_itself_scores_highest(bert: VllmServer) -> None:
    scores = HttpReranker("score", bert.root, "context-1").score(TEXTS[1], TEXTS)
    assert max(range(3), key=lambda at: scores[at]) == 1


def test_an_unknown_model_is_refused_by_the_name_of_its_setting(bert: VllmServer) -> None:
    with pytest.raises(ModelRefused, match="HOPNODE_RERANKER_MODEL"):
        HttpReranker("score", bert.root, "stranger").score("q", TEXTS)
