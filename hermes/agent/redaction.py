"""Masks secrets in text: tool output, file reads, logs, questions, errors. Pure.

Two forms. ``redact`` keeps the ends of a long value, so that a person can tell which key it was. ``redact_file`` puts a
sentinel in its place, which write tools refuse: a mask must never find its way back into a file. Code survives:
``token = get_token()`` names no secret.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from hermes.patterns import lazy_pattern

SENTINEL = "«redacted»"
MASK = "***"
_SHORTEST_SHOWN = 18

# Token forms that vendors document; each is a secret wherever it stands.
_TOKENS = lazy_pattern(
    r"(?<![A-Za-z0-9_-])(?:"
    r"sk-(?:ant-|proj-|or-|svcacct-)?[A-Za-z0-9_-]{16,}"
    r"|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|glpat-[A-Za-z0-9_-]{16,}"
    r"|xox[abeprs]-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}"
    r"|(?:AKIA|ASIA|ABIA)[A-Z0-9]{16}|AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}"
    r"|(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9]{16,}"
    r"|hf_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{20,}|xai-[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,}|nvapi-[A-Za-z0-9_-]{20,}"
    r"|pplx-[A-Za-z0-9]{20,}|npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{20,}|dop_v1_[a-f0-9]{32,}|SG\.[\w-]{16,}\.[\w-]{16,}"
    r"|tvly-[A-Za-z0-9-]{16,}|fc-[a-f0-9]{28,}|lin_api_[A-Za-z0-9]{20,}|shpat_[a-fA-F0-9]{20,}|sq0[a-z]{3}-[\w-]{20,}"
    r"|\d{8,10}:AA[A-Za-z0-9_-]{32,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"
    r")"
)
_PRIVATE_KEY = lazy_pattern(
    r"(-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----)(.*?)(-----END (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.S,
)
_AUTHORIZATION = lazy_pattern(
    r"(?i)\b((?:proxy-)?authorization[\"']?\s*[:=]\s*[\"']?(?:bearer|basic|token|digest|apikey)\s+)([^\s\"',]{4,})"
    r"|\b(x-api-key[\"']?\s*:\s*[\"']?|x-hermes-session-token\s*:\s*)([^\s\"',]{4,})"
)
_URL_USER = lazy_pattern(r"(?<![a-z0-9+.-])([a-z][a-z0-9+.-]{1,20}://[^\s/:@\"']{0,200}:)([^\s/@\"']{1,300})(@)", re.I)
_URL_QUERY = lazy_pattern(
    r"(?i)([?&](?:api_?key|access_?token|token|secret|password|sig|signature|client_secret)=)([^&\s\"'#]{6,})"
)
_NAMES = (
    r"[A-Za-z0-9_.-]{0,60}(?:api[_-]?key|secret(?:[_-]?key)?|password|passwd|passphrase|access[_-]?key(?:[_-]?id)?"
    r"|auth[_-]?token|token|private[_-]?key|credentials?)"
)
_ENV = lazy_pattern(rf"(?im)(^|[\s;&])((?:export\s+)?{_NAMES})(=)([\"']?)([^\s\"'#;&|]+)(\4)")
_QUOTED = lazy_pattern(
    rf"(?i)((?<![A-Za-z0-9_.-])[\"']?{_NAMES}[\"']?\s*[:=]\s*)([\"'])((?:(?!\2)[^\\\n]){{6,500}})(\2)"
)
_YAML = lazy_pattern(
    rf"(?im)^([ \t]*(?:-[ \t]+)?[\"']?{_NAMES}[\"']?:[ \t]+)([^\s\"'#{{\[|>&*!][^\s#]*)([ \t]*(?:#.*)?)$"
)
# ``key`` says little, and much is called so: only what is long, made of three kinds of character and of no words.
_PLAIN_KEY = lazy_pattern(
    r"(?m)^([ \t]*(?:-[ \t]+)?[\"']?key[\"']?:[ \t]+[\"']?)"
    r"(?=\S*[a-z])(?=\S*[A-Z])(?=\S*[0-9]\S*[0-9])([A-Za-z0-9_-]{24,})([\"']?[ \t,]*(?:#.*)?)$"
)
_NOT_A_VALUE = lazy_pattern(
    r"[\"'({\[]|\$|<|%|\*{3}|«|null$|none$|true$|false$|undefined$|nil$|yes$|no$|str(ing)?$|int(eger)?$|bool(ean)?$"
    r"|any$|optional|required$|bytes$|object$|number$|[x.*-]+$|your[_-]|changeme$|example$|test$|\d{1,5}$|os\.|self\.|env\.|process\.",
    re.I,
)
_CODE = lazy_pattern(r"[A-Za-z_][\w.]*\s*[(\[]|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+$|[A-Za-z_][A-Za-z_]*[,;)\]]*$")


# One of these stands in every text that any pattern matches: most texts hold none, and looking for them costs a
# fiftieth of the patterns.
_TOKEN_SIGNS = (
    *("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "xapp-", "AKIA", "ASIA", "ABIA"),
    *(
        "AIza",
        "ya29.",
        "k_live_",
        "k_test_",
        "whsec_",
        "hf_",
        "gsk_",
        "xai-",
        "r8_",
        "nvapi-",
        "pplx-",
        "npm_",
        "pypi-",
    ),
    *("dop_v1_", "SG.", "tvly-", "fc-", "lin_api_", "shpat_", "sq0", ":AA", "eyJ", "PRIVATE KEY", "://"),
)
_NAME_SIGNS = ("key", "secret", "passw", "passphrase", "token", "credential", "authorization", "sig")
_HEADER_SIGNS = ("authorization", "x-api-key", "session-token")
# Where a value is given to a name that one of the patterns for names takes. Searched in lower case: that is quicker.
_ASSIGNED = lazy_pattern(r"(?:key|secret|passw(?:or)?d|passphrase|token|credentials?|id)[\"']?\s*[:=]\s*")


def mask(value: str) -> str:
    """Short values vanish, longer ones keep six characters in front and four behind."""
    return MASK if len(value) < _SHORTEST_SHOWN else f"{value[:6]}...{value[-4:]}"


def redact(text: str) -> str:
    """The text with every secret masked."""
    return _replace(text, mask) if text else text


def redact_value(value: Any, hide: Callable[[str], str], name: str = "") -> Any:
    """JSON data with every text in it redacted by ``hide``; the name of an entry counts as part of its text."""
    if isinstance(value, str):
        text = hide(value)
        named = hide(f"{name}={text}") if name else ""
        return named[len(name) + 1 :] if named.startswith(f"{name}=") else text
    if isinstance(value, Mapping):
        return {key: redact_value(item, hide, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_value(item, hide, name) for item in value]
    return value


def redact_file(text: str) -> str:
    """The text of a file with every secret replaced by the sentinel."""
    return _replace(text, lambda _value: SENTINEL) if text else text


def has_mask(text: str) -> bool:
    """True if the text carries the sentinel, or a secret in its masked form, and so must not be written."""
    return SENTINEL in text or bool(
        re.search(r"\b(?:sk-|ghp_|AKIA|xoxb-|AIza)[A-Za-z0-9_-]{0,6}\.\.\.[A-Za-z0-9_-]{4}\b", text)
    )


def redacts(text: str) -> bool:
    """True if the text holds something that looks like a secret."""
    return redact(text) != text


def key_lines(text: str) -> list[range]:
    """The numbers (from 1) of the lines inside private keys, without those that begin and end one."""
    found = _PRIVATE_KEY.finditer(text) if "PRIVATE KEY" in text else ()
    return [
        range(text.count("\n", 0, one.end(1)) + 2, text.count("\n", 0, one.end(2)) + 1 + (not one[3])) for one in found
    ]


def _lowered(text: str) -> str:
    # The one letter that the patterns take for an s and that has no lower case.
    return text.lower().replace("ſ", "s")


def _replace(text: str, hide: Callable[[str], str]) -> str:
    lowered = _lowered(text)
    if not (any(sign in text for sign in _TOKEN_SIGNS) or any(sign in lowered for sign in _NAME_SIGNS)):
        return text
    text = _PRIVATE_KEY.sub(lambda found: _private_key(found, hide), text)
    if any(sign in lowered for sign in _HEADER_SIGNS):
        text = _AUTHORIZATION.sub(lambda found: _authorization(found, hide), text)
    if "://" in text:
        text = _URL_USER.sub(
            lambda found: found[0] if _is_no_value(found[2]) else f"{found[1]}{hide(found[2])}{found[3]}", text
        )
    text = _URL_QUERY.sub(lambda found: f"{found[1]}{hide(found[2])}", text)
    text = _TOKENS.sub(lambda found: hide(found[0]), text)
    return _replace_assigned(text, hide)


def _replace_assigned(text: str, hide: Callable[[str], str]) -> str:
    """The patterns for names are slow, so they see only the lines where a name is given a value."""
    lowered = _lowered(text)
    if len(lowered) != len(text):
        return _replace_named(text, hide)
    parts: list[str] = []
    done = begin = end = 0
    for found in _ASSIGNED.finditer(lowered):
        if found.start() >= end:
            parts += (text[done:begin], _replace_named(text[begin:end], hide))
            done, begin = end, max(end, text.rfind("\n", 0, found.start()) + 1)
        if found.end() >= end:
            line_end = text.find("\n", found.end())
            end = line_end if line_end >= 0 else len(text)
    return "".join((*parts, text[done:begin], _replace_named(text[begin:end], hide), text[end:]))


def _replace_named(text: str, hide: Callable[[str], str]) -> str:
    if not text:
        return text
    text = _QUOTED.sub(lambda found: _quoted(found, hide), text)
    text = _ENV.sub(lambda found: _env(found, hide), text)
    text = _PLAIN_KEY.sub(lambda found: f"{found[1]}{hide(found[2])}{found[3]}", text)
    return _YAML.sub(lambda found: _yaml(found, hide), text)


def _private_key(found: re.Match[str], hide: Callable[[str], str]) -> str:
    # As many lines as before, so that line numbers of the text stay true.
    rest = max(found[2].count("\n") - 1, 1 if found[3] else 0)
    return f"{found[1]}\n{hide('')}" + "\n" * rest + found[3]


def _authorization(found: re.Match[str], hide: Callable[[str], str]) -> str:
    head, value = (found[1], found[2]) if found[1] else (found[3], found[4])
    return found[0] if _is_no_value(value) else f"{head}{hide(value)}"


def _quoted(found: re.Match[str], hide: Callable[[str], str]) -> str:
    value = found[3]
    # Prose and placeholders in quotes are no secrets: those have no spaces and more than one kind of character.
    if _is_no_value(value) or " " in value or not _looks_random(value):
        return found[0]
    return f"{found[1]}{found[2]}{hide(value)}{found[4]}"


def _env(found: re.Match[str], hide: Callable[[str], str]) -> str:
    name, value = found[2], found[5]
    shouted = name.split()[-1].isupper()
    if _is_no_value(value) or (_CODE.match(value) and not (shouted and not re.search(r"[(\[]", value))):
        return found[0]
    return f"{found[1]}{name}{found[3]}{found[4]}{hide(value)}{found[6]}"


def _yaml(found: re.Match[str], hide: Callable[[str], str]) -> str:
    value = found[2]
    if _is_no_value(value) or _CODE.match(value) or not _looks_random(value):
        return found[0]
    return f"{found[1]}{hide(value)}{found[3]}"


def _is_no_value(value: str) -> bool:
    return (
        SENTINEL in value
        or MASK in value
        or bool(re.search(r"\w{6}\.\.\.\w{4}$", value))
        or bool(_NOT_A_VALUE.match(value))
    )


def _looks_random(value: str) -> bool:
    kinds = sum(bool(re.search(kind, value)) for kind in ("[a-z]", "[A-Z]", "[0-9]", r"[^A-Za-z0-9\s]"))
    return kinds >= 2 and not re.fullmatch(r"[a-z]+([_.-][a-z]+)*|[A-Z]+(_[A-Z]+)*|[A-Za-z]+", value)
