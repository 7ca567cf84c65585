"""The reference page of errors is the error table, printed."""

from __future__ import annotations

from pathlib import Path

from hermes.protocols.error_table import METHOD_CODES, TABLE

PAGE = Path("docs/reference/errors.md")
HEAD = """# Errors

What each error is called on the three wires. A cancelled turn, a failed tool and a declined question are no errors.
Anything that is not in this table is a bug of the server: the answer holds a log id, the log has the rest.

| Error | Gateway | ACP | HTTP | HTTP code |
| --- | --- | --- | --- | --- |
"""
OWN = """
## Numbers of single gateway methods

| Method | Error | Code |
| --- | --- | --- |
"""


def expected_page() -> str:
    rows = [
        f"| {kind.__name__} | {row.gateway} | {row.acp} | {row.http} | {row.http_code or ''} |"
        for kind, row in TABLE.items()
    ]
    own = [
        f"| `{method}` | {kind.__name__} | {code} |"
        for method, codes in sorted(METHOD_CODES.items())
        for kind, code in codes.items()
    ]
    return HEAD + "\n".join(rows) + "\n" + OWN + "\n".join(own) + "\n"


def test_the_page_is_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == expected_page(), f"write {PAGE} anew: python -m {__name__}"


if __name__ == "__main__":
    PAGE.write_text(expected_page(), encoding="utf-8")
