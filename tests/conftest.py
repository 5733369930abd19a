"""For every test: hypothesis measures no time, which would say how busy the machine is."""

from __future__ import annotations

import os
from pathlib import Path

from hypothesis import settings

settings.register_profile("attncli", deadline=None)
if not os.access(Path.cwd(), os.W_OK):  # somebody else's checkout, in which no example can be kept
    settings.register_profile("attncli", settings.get_profile("attncli"), database=None)
settings.load_profile("attncli")
