"""Bugs of gradients: the forward pass is right, the way back is not.

Each is an edit of the plan's gradient steps (edits.py), or of weights that are computed again from
a saved log Σ exp, as kernels do (again.py).
"""

from __future__ import annotations

from attncli.check.bugs.backward.blocks import BLOCKS_LOST
from attncli.check.bugs.backward.dropout import DROPOUT
from attncli.check.bugs.backward.heads import HEADS
from attncli.check.bugs.backward.keys import KEYS
from attncli.check.bugs.backward.layouts import OTHER_LOSSES, PLACES
from attncli.check.bugs.backward.lse import LSE
from attncli.check.bugs.backward.masks import RECOMPUTED
from attncli.check.bugs.backward.scale import OTHER_SCALES, SCALE
from attncli.check.bugs.backward.sinks import BIAS, SINKS
from attncli.check.bugs.backward.softcap import SOFTCAP
from attncli.check.bugs.backward.softmax import SOFTMAX
from attncli.check.bugs.bug import Bug

BACKWARD: tuple[Bug, ...] = (
    *SOFTMAX,
    *SCALE,
    *HEADS,
    *DROPOUT,
    *SOFTCAP,
    *SINKS,
    *BIAS,
    *BLOCKS_LOST,
    *PLACES,
    *RECOMPUTED,
    *LSE,
    *KEYS,
    *OTHER_SCALES,
    *OTHER_LOSSES,
)
