"""Remarks: what the user should know besides the result, on standard error."""

from __future__ import annotations

import sys


def remark(text: str, *, quiet: bool) -> None:
    """One line on standard error, unless --quiet was given."""
    if not quiet:
        print(f"attncli: note: {text}", file=sys.stderr)
