"""Hermes: an agent server on Trio."""

__version__ = "0.1.0"
