"""Buggy attentions in plain NumPy, and what `check` makes of them."""

from __future__ import annotations

from typing import Any

from attncli import Convention
from attncli.check import Verdict, check
from tests.check.buggy.parts import Computed


def verdict_of(computed: Computed, **more: Any) -> Verdict:
    """The verdict on what a buggy attention computed."""
    how = Convention(**computed.how)
    q, k, v = computed.q, computed.k, computed.v
    return check(computed.observed, q, k, v, convention=how, **{**computed.given, **more})
