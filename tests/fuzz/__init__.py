"""Bytes that nobody expects, for everything that reads bytes.

``targets`` are functions of bytes that raise when a promise is broken. Hypothesis plays a sample of them in the suite;
``make fuzz`` lets atheris look for hours where the branches are (``pip install '.[fuzz]'``).
"""
