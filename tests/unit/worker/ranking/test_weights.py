"""The weights that ship are the ones that were fitted, and a file that was damaged is refused with the place of the damage."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.data.memory_insight import evidence_of

from hopnode.worker.errors import ConfigurationError
from hopnode.worker.ranking.signals import LINKS_PER_DIRECTION, Certainty, Direct, Linked, names_of
from hopnode.worker.ranking.weighing import WEIGHTS, fitted_rounds, rank
from hopnode.worker.ranking.weights import BIAS, LINES, ROUNDS, Origin, digest_of, loaded, written

SHIPPED = WEIGHTS.read_text(encoding="utf-8")
ORIGIN, WEIGHED = loaded(SHIPPED)

# --- the file that ships ------------------------------------------------------------------------------------------

TEXTS = [
    "Old Town harbour was built in 1900 by Anna Berg",
    "Anna Berg Anna Berg sailed the ships of the Old-Town harbour",
    "Cora ship Cora of the harbour, built by Anna Berg in 1900",
    "ships in the harbour",
    "Berg Cora built the Old harbour of 東京都",
    "東京都 harbour 東京都 ships",
    "Cora Anna of 1900",
    "the of in",
    "harbours ship built",
    "Old Berg 1900",
]
ENGLISH, OTHER = "Who built the Old Town harbour in 1900, Anna Berg or Cora?", "東京都 Cora harbour"
GOLDEN = {
    (ENGLISH, 1): [
        (2, 6.78277312921, 0.563807032399),
        (0, 6.18605125148, 0.745513233244),
        (4, 4.6864789471, 0.0625354132827),
        (1, 3.83004768703, 0.0203899630886),
        (7, 1.64949393897, 0.00426217672268),
        (8, 1.14146690632, 0.00580535101585),
        (6, 0.285533021279, 0.00301688181025),
        (5, -0.194966019833, 0.00124718099087),
        (9, -1.25494632385, 0.000539186848493),
        (3, -1.25781583083, 0.000662544835362),
    ],
    (ENGLISH, 3): [
        (2, 5.76045644528, 0.38128580555),
        (4, 5.27730403528, 0.179691039745),
        (1, 4.18972729829, 0.0299672984103),
        (0, 4.09612476733, 0.25889708517),
        (7, 3.03031316735, 0.00881145386735),
        (5, -0.247716150255, 0.00019227547167),
        (8, -0.348229676835, 0.000291063093849),
        (6, -1.67881782951, 9.57587392501e-05),
        (9, -1.79037486626, 4.96495809535e-05),
        (3, -2.11256119501, 3.1534959447e-05),
    ],
    (OTHER, 1): [
        (2, 8.19343905459, 0.653191725436),
        (4, 7.93115249814, 0.0484046559504),
        (5, 7.81466185137, 0.0469086401254),
        (0, 1.66759698395, 0.0134581473285),
        (6, 1.07842448038, 0.00305435160526),
        (1, -0.628486433558, 0.000777777348767),
        (3, -1.29699560022, 0.000545380620719),
    ],
    (OTHER, 3): [
        (2, 10.3516137677, 0.712311843545),
        (5, 9.85846365121, 0.157835158262),
        (4, 8.06993388197, 0.0484046559504),
        (0, 2.51260896214, 0.00446516940466),
        (6, 2.21813701388, 0.00101099787015),
        (1, 1.09058737349, 0.000181072259886),
        (9, -0.0519987593671, 0.000234835278105),
        (3, -1.25289443214, 2.61318093319e-05),
    ],
}
"""Row, score and trust, best first, from the weights as they were before their numbers had names."""


@pytest.mark.parametrize(("question", "rounds"), GOLDEN)
def test_the_weights_that_ship_give_a_fixed_example_the_scores_that_they_always_gave(
    question: str, rounds: int
) -> None:
    found = rank(evidence_of(question, TEXTS), fitted_rounds()[:rounds])
    assert [one.row for one in found] == [row for row, *_ in GOLDEN[question, rounds]]
    wanted = np.array([numbers for _, *numbers in GOLDEN[question, rounds]])
    np.testing.assert_allclose([(one.score, one.trust) for one in found], wanted, rtol=1e-9)


def test_the_file_that_ships_says_what_it_was_fitted_on_and_how() -> None:
    assert {"2wiki-dev-163", "hotpotqa-train-100", "musique-train-100", "xquad-12lang"} == set(ORIGIN.sets)
    assert "bench/train_offline.py" in ORIGIN.command and ORIGIN.fitted_on.startswith("20")
    assert ORIGIN.reproduced or ORIGIN.remarks, "what cannot be made again has to say why"
    assert {"en", "zh", "ar"} <= set(ORIGIN.languages)


def test_what_the_file_says_of_round_two_is_so() -> None:
    same = [np.array_equal(one.order, one.words) for one in WEIGHED]
    said = any("words equals order" in remark for remark in ORIGIN.remarks)
    assert same == [False, said, False]


def test_nothing_reads_the_orders_of_the_middle_round() -> None:
    first, middle, last = fitted_rounds()
    blank = np.zeros_like(middle.order)
    for question in (ENGLISH, OTHER):
        without = rank(evidence_of(question, TEXTS), (first, replace(middle, order=blank, words=blank), last))
        assert [(one.row, one.trust) for one in without] == [
            (one.row, one.trust) for one in rank(evidence_of(question, TEXTS))
        ]


def test_writing_what_was_read_gives_the_same_bytes() -> None:
    assert written(ORIGIN, WEIGHED) == SHIPPED


def test_every_number_of_the_file_has_the_name_of_its_signal() -> None:
    stored = json.loads(SHIPPED)["rounds"]
    assert len(stored) == ROUNDS and all(tuple(one) == LINES for one in stored)
    for number, one in enumerate(stored, start=1):
        for line, numbers in one.items():
            assert tuple(numbers) == (*names_of(number), *((BIAS,) if line == "trust" else ()))


def test_names_of_signals_are_different_and_say_their_columns() -> None:
    assert len(set(names_of(2))) == len(names_of(2)) == len(Direct) + len(Linked) + len(Certainty)
    assert names_of(2)[: len(names_of(1))] == names_of(1) and names_of(3) == names_of(2)
    for kind in (Direct, Linked, Certainty):
        assert [member.value for member in kind] == list(range(len(kind)))
    one_way = [name.removeprefix("MENTIONED_") for name in Linked.__members__][:LINKS_PER_DIRECTION]
    other_way = [name.removeprefix("MENTIONS_") for name in Linked.__members__][LINKS_PER_DIRECTION:][
        :LINKS_PER_DIRECTION
    ]
    assert one_way == other_way


# --- a file that was damaged --------------------------------------------------------------------------------------


def renamed(numbers: dict[str, float], before: str, after: str) -> dict[str, float]:
    return {after if name == before else name: value for name, value in numbers.items()}


def signed(stored: dict[str, Any]) -> None:
    stored["sha256"] = digest_of(stored["rounds"])


def without_a_number(stored: dict[str, Any]) -> None:
    del stored["rounds"][1]["order"]["mentioned_gap"]
    signed(stored)


def with_one_too_many(stored: dict[str, Any]) -> None:
    stored["rounds"][0]["mean"]["mood"] = 0.5
    signed(stored)


def without_a_bias(stored: dict[str, Any]) -> None:
    del stored["rounds"][2]["trust"]["bias"]
    signed(stored)


def with_a_name_of_old(stored: dict[str, Any]) -> None:
    stored["rounds"][0]["scale"] = renamed(stored["rounds"][0]["scale"], "coverage", "cover")
    signed(stored)


def in_another_order(stored: dict[str, Any]) -> None:
    stored["rounds"][0]["order"] = dict(reversed(stored["rounds"][0]["order"].items()))
    signed(stored)


def without_a_line(stored: dict[str, Any]) -> None:
    del stored["rounds"][0]["words"]
    signed(stored)


def without_a_round(stored: dict[str, Any]) -> None:
    stored["rounds"].pop()
    signed(stored)


def with_a_scale_of_nothing(stored: dict[str, Any]) -> None:
    stored["rounds"][0]["scale"]["phrase"] = 0.0
    signed(stored)


def with_no_number_at_all(stored: dict[str, Any]) -> None:
    stored["rounds"][0]["mean"]["phrase"] = "much"


def of_another_format(stored: dict[str, Any]) -> None:
    stored["format"] = 2


def changed_by_hand(stored: dict[str, Any]) -> None:
    stored["rounds"][0]["order"]["named"] += 0.00001


def of_unknown_origin(stored: dict[str, Any]) -> None:
    del stored["origin"]["sets"]


def with_more_than_is_known(stored: dict[str, Any]) -> None:
    stored["comment"] = "hello"


DAMAGES: dict[Callable[[dict[str, Any]], None], str] = {
    without_a_number: "round 2, order: missing mentioned_gap",
    with_one_too_many: "round 1, mean: unknown mood",
    without_a_bias: "round 3, trust: missing bias",
    with_a_name_of_old: "round 1, scale: missing coverage",
    in_another_order: "round 1, order: the names are not in the order of the signals",
    without_a_line: "round 1: missing words",
    without_a_round: "it holds 2 rounds, not 3",
    with_a_scale_of_nothing: r"round 1, scale: phrase is 0\.0",
    with_no_number_at_all: r"rounds\.0\.mean\.phrase: .*number",
    of_another_format: "its format is 2, this version reads 1",
    changed_by_hand: "its sha256 does not fit its weights",
    of_unknown_origin: r"origin\.sets: Field required",
    with_more_than_is_known: "comment: Extra inputs are not permitted",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_file_that_cannot_be_trusted_is_refused_with_the_place_and_a_way_out(
    damage: Callable[[dict[str, Any]], None],
) -> None:
    stored = json.loads(SHIPPED)
    damage(stored)
    with pytest.raises(ConfigurationError, match=DAMAGES[damage]) as refused:
        loaded(json.dumps(stored))
    assert "ranking.json" in str(refused.value) and "Install Hopnode again" in str(refused.value)


def test_numbers_that_are_none_are_refused() -> None:
    stored = json.loads(SHIPPED)
    stored["rounds"][0]["order"]["named"] = float("nan")
    signed(stored)
    with pytest.raises(ConfigurationError):
        loaded(json.dumps(stored))


@pytest.mark.parametrize("text", ["", "[]", "{", "null", SHIPPED[: len(SHIPPED) // 2]])
def test_a_file_that_was_cut_off_or_replaced_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"ranking\.json"):
        loaded(text)


def test_the_layout_of_the_file_may_change_without_touching_its_sha256() -> None:
    origin, rounds = loaded(json.dumps(json.loads(SHIPPED), indent=4))
    assert origin == ORIGIN
    assert all(np.array_equal(one.trust, other.trust) for one, other in zip(rounds, WEIGHED, strict=True))


# --- writing ------------------------------------------------------------------------------------------------------


def test_weights_of_a_wrong_length_are_not_written() -> None:
    first, *rest = WEIGHED
    with pytest.raises(ValueError, match="shorter"):
        written(ORIGIN, [replace(first, order=first.order[:-1]), *rest])


def test_weights_that_could_not_be_loaded_are_not_written() -> None:
    first, *rest = WEIGHED
    with pytest.raises(ConfigurationError, match="round 1, scale"):
        written(ORIGIN, [replace(first, scale=np.zeros_like(first.scale)), *rest])
    with pytest.raises(ConfigurationError, match="rounds"):
        written(ORIGIN, [first, *rest, rest[-1]])


def test_new_weights_are_rounded_and_come_back_with_their_origin() -> None:
    first, *rest = WEIGHED
    origin = Origin(sets=("東京",), languages=("ja",), fitted_on="2026-12-01", command="by hand", reproduced=True)
    text = written(origin, [replace(first, order=first.order + 0.0000012), *rest])
    assert "東京" in text and loaded(text)[0] == origin
    assert np.array_equal(loaded(text)[1][0].order, first.order)
    changed = written(origin, [replace(first, order=first.order + 0.1), *rest])
    assert json.loads(changed)["sha256"] != json.loads(SHIPPED)["sha256"] == json.loads(text)["sha256"]
