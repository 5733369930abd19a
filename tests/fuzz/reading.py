"""What a second reading of a file gives, or that it must be refused."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from attncli.arrays import Array

NAMES = {
    "q": r"xq|(q|query|queries)(_states|_layer|_tensor)?",
    "k": r"xk|(k|key|keys)(_states|_layer|_tensor)?",
    "v": r"xv|(v|value|values)(_states|_layer|_tensor)?",
    "past_k": r"past_(k|key|keys)|(k|key|keys)_cache|(cache|cached)_(k|key|keys)",
    "past_v": r"past_(v|value|values)|(v|value|values)_cache|(cache|cached)_(v|value|values)",
    "mask": r"mask|masks|attn_mask|attention_mask|attn_bias|attention_bias|additive_mask",
    "sinks": r"sinks?|attn_sinks|attention_sinks|s_aux",
    "d_output": r"do|d_out(put)?|grad_out(put)?|dout",
}
"""The names under which a file may hold each role, in any case."""
LABELS = ("tokens", "query_tokens", "key_tokens")


class RefusalError(Exception):
    """This must not be accepted."""


class NoOpinionError(Exception):
    """What this means is a choice that the second reading does not make."""


@dataclass
class Reading:
    """What a file holds: arrays by name, names of what is no array, a scale, lists of labels."""

    arrays: dict[str, Array]
    wrong: tuple[str, ...] = ()
    scale: float | None = None
    labels: dict[str, Any] = field(default_factory=dict)


def role_of(name: str) -> str | None:
    """The role of an array called so."""
    plain = name.lower().replace("-", "_").replace(" ", "_")
    return next((role for role, names in NAMES.items() if re.fullmatch(names, plain)), None)
