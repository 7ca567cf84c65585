"""One target under atheris: ``python -m tests.fuzz.with_atheris TARGET CORPUS [libfuzzer options]``."""

from __future__ import annotations

import sys

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["hermes"]):
    from tests.fuzz.targets import TARGETS


def main() -> None:
    name, *arguments = sys.argv[1:]
    atheris.Setup([sys.argv[0], *arguments], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    main()
