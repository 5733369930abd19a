"""Seeds by name: every matrix and every dropout draws from a generator of its own.

So a number depends on the seed and the name alone, never on what else is drawn or in which order.
"""

from __future__ import annotations

import hashlib


def named_seed(seed: int, name: str) -> int:
    """A seed for one dotted name: the first 48 bits of BLAKE2b(seed:name), exact in JSON as well.

    Source: RFC 7693 (BLAKE2).

    >>> named_seed(0, "encoder.1.w_q")
    180783616057621
    """
    text = f"{seed}:{name}".encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=6).digest(), "big")
