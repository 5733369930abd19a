"""Tab-separated values: see csv.py."""

from __future__ import annotations

from functools import partial

from attncli.formats import csv

text = partial(csv.text, delimiter="\t")
