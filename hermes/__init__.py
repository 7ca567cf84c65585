"""Hermes: an agent server on Trio."""

from typing import Final

__version__: Final = "0.1.0"
