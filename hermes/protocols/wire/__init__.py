"""Codecs without I/O: bytes in, typed messages out, and back."""
