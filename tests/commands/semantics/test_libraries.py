"""Each preset against its library, where that is installed: the table of what they mean is true."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

from attncli import Convention, ConventionError, attend
from attncli.arrays import Array
from attncli.presets import PRESETS
from tests.commands.semantics.calls import CALLS, KEEP, Call, call, lowered
from tests.commands.semantics.libraries import LIBRARIES, NoArgumentError

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # Keras
    pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile"),
]

# Both compute in float32, whose rounding comes to 5e-7 here; outputs are below 4.
TOLERANCE = 1e-5


class Own(NamedTuple):
    """A call of one preset, with an argument that it alone has, and the same for `attend`."""

    preset: str
    call: Call
    argument: Mapping[str, Any] = {}
    says: Mapping[str, Any] = {}


PADDED = np.array([[True, True, True, False, False], [False] * 5])
PAST = {"past_k": CALLS["plain"].k, "past_v": CALLS["plain"].v}  # 5 keys before the first query
OWN = {
    "square": Own("ort-gqa", call(5, 5)),
    "square, causal": Own("ort-gqa", call(5, 5, causal=True)),
    "square, 6 heads on 3": Own("ort-gqa", call(5, 5, heads=(6, 3))),
    "square, d_v 11": Own("ort-gqa", call(5, 5, d_v=11)),
    "softcap": Own("ort-gqa", call(5, 5), {"softcap": 2.0}, {"softcap": 2.0}),
    "window": Own("ort-gqa", call(5, 5), {"local_window_size": 2}, {"window": (2, -1)}),
    "window of both sides": Own("jax", call(7, 11), {"local_window_size": 2}, {"window": (2, 2)}),
    "square, past": Own("onnx", call(3, 3, causal=True), {"past": PAST}, PAST),
    "reference, past": Own("onnx-reference", call(3, 3, causal=True), {"past": PAST}, PAST),
    "one query, past": Own("ort-gqa", call(1, 1), {"past": PAST}, PAST),
    "padding": Own("keras-attention", call(), {"padding": PADDED}, {"kv_len": [3, 0]}),
    "mask and causal 3x5": Own("ort-mha", call(mask=KEEP, causal=True)),
    "0/-inf and causal 3x5": Own("ort-mha", call(mask=lowered(KEEP), causal=True)),
}
CALLS_OF = {
    name: {what: Own(name, one) for what, one in CALLS.items()}
    | {what: own for what, own in OWN.items() if own.preset == name}
    for name in LIBRARIES
}


def meant(own: Own, convention: Convention) -> Array | str:
    """What attncli gives, or why it refuses the call; in float32, as the libraries."""
    q, k, v, mask, causal = own.call
    convention = replace(convention, causal=convention.causal or causal, dtype="float32")
    sizes = {"heads": (q.shape[1], k.shape[1]), "lengths": (q.shape[2], k.shape[2])}
    sizes["widths"] = k.shape[-1], v.shape[-1]
    if why := PRESETS[own.preset].refuses_call(convention, mask, **sizes):
        return why
    try:
        return attend(q, k, v, mask=mask, convention=convention, **own.says)["output"].value
    except ConventionError as problem:
        return str(problem)


def given(own: Own) -> Array | Exception:
    """What the library gives, or what it raises."""
    library = LIBRARIES[own.preset]
    if missing := library.missing:
        pytest.skip(f"{', '.join(missing)} not found: pip install attncli[libraries]")
    try:
        return np.asarray(library.run(*own.call, **own.argument), dtype=np.float32)
    except Exception as problem:  # each library refuses in its own way
        return problem


def is_reason(why: Any, problem: Any) -> bool:
    """Whether the reason is the library's: what it quotes is said; without, it has no argument."""
    quoted, words = re.findall(r'"([^"]*)"', why), " ".join(str(problem).split())
    has_argument = not isinstance(problem, NoArgumentError)
    return bool(quoted) == has_argument and all(text in words for text in quoted)


def differ(one: Any, other: Any) -> bool:
    if not (isinstance(one, np.ndarray) and isinstance(other, np.ndarray)):
        return type(one) is not type(other)
    return not np.allclose(one, other, rtol=0, atol=TOLERANCE, equal_nan=True)


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_library_means_what_its_preset_says(name: str) -> None:
    row, wrong = PRESETS[name], {}
    for what, own in CALLS_OF[name].items():
        theirs, ours = given(own), meant(own, Convention.of(name))
        is_refused = isinstance(ours, str) and isinstance(theirs, Exception)
        if not is_reason(ours, theirs) if is_refused else differ(ours, theirs):
            wrong[what] = f"ours {ours}, the library {theirs!r}"
    assert wrong == {}, f"the row of {row.version} has {dict(row.fields)}"


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_preset_without_one_of_its_fields_or_refusals_would_be_seen(name: str) -> None:
    """Each field changes the numbers of a call, each reason is given for one."""
    convention, calls = Convention.of(name), CALLS_OF[name].values()
    for field in PRESETS[name].fields:
        without = replace(convention, **{field: getattr(Convention, field)})
        assert any(differ(meant(own, convention), meant(own, without)) for own in calls), field
    reasons = {ours for own in calls if isinstance(ours := meant(own, convention), str)}
    assert {*PRESETS[name].refuses.values()} <= reasons


def test_every_preset_is_run_or_known_from_documents() -> None:
    assert {name for name, row in PRESETS.items() if row.version} == set(LIBRARIES)
