"""``python -m hermes``."""

from hermes.cli import main

main()
