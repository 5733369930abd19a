"""For every test: hypothesis measures no time, which would say how busy the machine is."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("attncli", deadline=None)
settings.load_profile("attncli")
