"""attncli: attention, computed and shown step by step."""

from attncli._version import __version__

__all__ = ["__version__"]
