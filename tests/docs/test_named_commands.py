"""Commands that the documentation names exist, with every option that stands behind them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from hermes.cli.root import hermes, with_command

PAGES = [
    Path("README.md"),
    *(path for path in sorted(Path("docs").rglob("*.md")) if path.name != "command-line.md"),
]
SHELL = re.compile(r"^```(?:sh|console)\n(.*?)^```$", re.M | re.S)
INLINE = re.compile(r"`((?:[A-Z_]+=\S+ )*(?:\.venv/bin/)?hermes(?: [^`]+)?)`", re.S)
INDENTED = re.compile(r"^    ((?:\.venv/bin/)?hermes .*)$", re.M)
COMMAND = re.compile(r"(?:^|[|;&(]\s*|\$ |[A-Z_]+=\S+ )(?:\.venv/bin/|dist/)?hermes(?= |$)([^|;&)<>#\n]*)", re.M)
# What starts ours under a name of its own, and what is said not to be there.
NOT_OURS = ("-m tui_gateway.entry", "--mode rpc")


def command_lines(page: Path) -> Iterator[str]:
    """The arguments of each ``hermes`` on the page."""
    text = page.read_text(encoding="utf-8")
    blocks = [block.replace("\\\n", " ") for block in SHELL.findall(text)]
    for piece in (*blocks, *(" ".join(found.split()) for found in (*INLINE.findall(text), *INDENTED.findall(text)))):
        for arguments in COMMAND.findall(piece):
            if arguments.strip() not in NOT_OURS:
                yield arguments.strip()


def unknown_words(line: str) -> list[str]:
    """Commands and options of the line that there are not."""
    words = with_command(shlex.split(line.replace("…", "x")))
    command: click.Command = hermes
    known = {"-h", "--help", "--version"}
    unknown = []
    while words and isinstance(command, click.Group) and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        if found is None:
            return [words[0]]
        known |= {name for parameter in command.params for name in parameter.opts}
        command, words = found, words[1:]
    known |= {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        name = word.partition("=")[0]
        if re.match(r"--?[a-z]", name) and name not in known:
            unknown.append(name)
    return unknown


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_command_that_a_page_names_exists_with_its_options(page: Path) -> None:
    wrong = {line: unknown for line in command_lines(page) if (unknown := unknown_words(line))}
    assert wrong == {}


def test_the_pages_name_many_and_a_wrong_one_would_be_found() -> None:
    assert sum(1 for page in PAGES for _ in command_lines(page)) > 60
    assert unknown_words("tree --wach") == ["--wach"]
    assert unknown_words("sesions list") == ["sesions"]
    assert unknown_words("sessions prune") == ["prune"]
    assert unknown_words('-p "hello" --deadlin 3') == ["--deadlin"]
