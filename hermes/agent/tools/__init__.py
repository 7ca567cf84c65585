"""The tools a model can call. ``registry.py`` holds them all; each file is one tool or one thing that tools share."""
