"""Hermes: an agent server on Trio."""
