"""The folder name of a session below the home. Pure.

Clients may name sessions as they like: the name is never another folder's, however the id is spelled, because what
belongs to a deleted session is removed with its whole folder.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final

DEFAULT: Final = "default"
"""Of what belongs to no session."""
_UNSAFE: Final = re.compile(r"[^\w.-]+")
_LONGEST: Final = 100


def folder_name(key: str | None) -> str:
    """The id itself where it is a plain name, else what is left of it and a digest of the whole."""
    if not key:
        return DEFAULT
    plain = _UNSAFE.sub("_", key)[:_LONGEST].lstrip(".")
    if plain == key and key != DEFAULT:
        return key
    return f"{plain}-{hashlib.sha256(key.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
