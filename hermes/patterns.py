"""``lazy_pattern``: a regular expression that is compiled when it is first used.

The tables of expressions are long and one run needs few of them: compiling them all cost a good part of the start.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from re import compile as lazy_pattern
else:

    class lazy_pattern:
        """Has the methods of ``re.Pattern``; each is fetched once and then found at once."""

        def __init__(self, text: str, flags: int = 0) -> None:
            self._source = (text, flags)

        def __getattr__(self, name: str) -> Any:
            found = getattr(re.compile(*self._source), name)
            setattr(self, name, found)
            return found


__all__ = ["lazy_pattern"]
