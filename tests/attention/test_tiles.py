"""Keys in tiles and in splits: numbers worked by hand, and what is refused.

That any cut gives what one piece gives is in tests/conformance.
"""

import math
from typing import Any

import numpy as np
import pytest

from attncli import AttncliError, Trace, attend, attend_split, attend_tiles

Q = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
K = [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
V = [[10.0, 0.0], [0.0, 10.0], [5.0, 5.0]]
A, B = 0.5**0.5, math.exp(-(0.5**0.5))  # a score of 1 over √2, and exp of less by as much
PLAIN: dict[str, Any] = {"scale": "none"}
RNG = np.random.default_rng(3)


def assert_stages(trace: Trace, **wanted: Any) -> None:
    """By name, with __ for a dot."""
    for name, value in wanted.items():
        own = np.squeeze(trace[name.replace("__", ".")].value)
        assert own == pytest.approx(np.array(value)), name


def test_tiles_worked_by_hand() -> None:
    """Scores 1, 1, 0 | 1, 0, 1 | 2, 1, 1 over √2, in tiles of two keys and one."""
    trace = attend_tiles(Q, K, V, tiles=2)
    first: dict[str, Any] = {"m": [A, A, 2 * A], "p": [[1, 1], [1, B], [1, B]]}
    first |= {"l": [2, 1 + B, 1 + B], "acc": [[10, 10], [10, 10 * B], [10, 10 * B]]}
    first["so_far"] = [[5, 5]] + [[10 / (1 + B), 10 * B / (1 + B)]] * 2
    second: dict[str, Any] = {"m": [A, A, 2 * A], "alpha": [1] * 3, "l": [2 + B, 2 + B, 1 + 2 * B]}
    second["acc"] = [[10 + 5 * B] * 2, [15, 10 * B + 5], [10 + 5 * B, 15 * B]]
    for n, stages in (("1", first), ("2", second)):
        assert_stages(trace, **{f"tile__{n}__{name}": value for name, value in stages.items()})
    assert_stages(trace, lse=[A + math.log(2 + B)] * 2 + [2 * A + math.log(1 + 2 * B)])
    assert "tile.1.alpha" not in trace  # there was nothing before
    assert trace["tile.2.scaled"].names("key") == ("k3",)


def test_a_larger_maximum_rescales_and_a_sink_starts_it() -> None:
    """Scores 0 and then ln 4: what was 1 becomes 1/4. A sink of 0 beside two of ln 2: 2/5 each."""
    trace = attend_tiles([[1.0]], [[0.0], [math.log(4)]], [[8.0], [2.0]], tiles=1, **PLAIN)
    more = {"tile__2__l": 1.25, "tile__2__acc": 4, "output": 3.2}
    assert_stages(trace, tile__2__m=math.log(4), tile__2__alpha=0.25, **more)
    qkv = np.ones((1, 1, 1)), np.full((1, 2, 1), math.log(2)), np.array([[[5.0], [10.0]]])
    trace = attend_tiles(*qkv, tiles=1, sinks=[0.0], **PLAIN)
    assert_stages(trace, tile__1__alpha=0.5, tile__1__l=1.5, output=6)
    split = attend_split(*qkv, split=[1], sinks=[0.0], **PLAIN)
    assert_stages(split, merge_weights=[0.4, 0.4], output=6)


def test_splits_are_merged_by_their_log_sum_exp() -> None:
    """Scores 0, ln 2 and ln 3: sums 1, 2 and 3 of 6."""
    qkv: Any = [[1.0]], np.log([[1.0], [2.0], [3.0]]), [[6.0], [12.0], [24.0]]
    for base, unit in (("e", 1), ("2", math.log(2))):
        trace = attend_split(*qkv, split=[1, 2], lse_base=base, **PLAIN)
        assert_stages(trace, split__3__lse=math.log(3) / unit, lse=math.log(6) / unit)
        assert_stages(trace, merge_weights=[1 / 6, 2 / 6, 3 / 6], output=1 + 4 + 12)


@pytest.mark.parametrize("empty", ["zero", "nan", "uniform", "unmasked"])
def test_rows_without_a_key_have_no_nan_on_the_way(empty: Any) -> None:
    """In none of the parts, or in the first alone: exp(−∞ − −∞) is nowhere taken."""
    mask = np.array([[False] * 3, [False, False, True], [True, False, False]])
    convention: dict[str, Any] = {"mask": mask, "empty_rows": empty}
    traces = (
        attend_tiles(Q, K, V, tiles=1, **convention),
        attend_split(Q, K, V, split=[1, 2], **convention),
    )
    for name, stage in (pair for trace in traces for pair in trace.stages()):
        assert name == "output" or not np.isnan(stage.value).any(), name


def test_some_rows_of_a_batch_with_a_cache() -> None:
    shapes = {"q": 5, "k": 2, "v": 2, "past_k": 3, "past_v": 3}
    arrays: Any = {name: RNG.normal(size=(2, 3, n, 7)) for name, n in shapes.items()}
    arrays |= {"kv_len": [4, 2], "rows": [1, 4], "causal": True}
    whole = attend(**arrays)["output"].value
    for trace in (attend_tiles(**arrays, tiles=2), attend_split(**arrays, split=[1, 3])):
        assert trace["output"].value == pytest.approx(whole, abs=1e-12)
    assert attend_tiles(Q, K, V, tiles=2, dtype="float16")["tile.2.acc"].value.dtype == np.float16


TILES: list[tuple[dict[str, Any], str]] = [
    *(({"tiles": n}, "whole number of keys") for n in (0, -1, 2.5, "2", True)),
    *(({"split": at}, "from 1 to 2") for at in ([], [0], [3], [-1], [2, 1], [1, 1], [1, 9])),
    *(({**cut, **more}, words)
      for cut in ({"tiles": 2}, {"split": [2]})
      for more, words in (({"softmax_over": "queries"}, "whole columns"),
                          ({"dropout": 0.5}, "drawn for all weights"),
                          ({"d_output": V}, "one softmax"))),
]  # fmt: skip


def test_what_is_refused() -> None:
    for more, words in TILES:
        with pytest.raises(AttncliError, match=words):
            (attend_tiles if "tiles" in more else attend_split)(Q, K, V, **more)
