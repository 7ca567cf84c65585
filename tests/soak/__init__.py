"""Soak: many turns, connections and cancelled tools on one server; afterwards it holds what it held before.

``python -m tests.soak`` plays the full counts, ``make soak`` too; the suite plays a sample.
"""
