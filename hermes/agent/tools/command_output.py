"""What becomes of a command's bytes before the model reads them: decoded, cleaned, redacted, cut. Pure."""

from __future__ import annotations

from hermes.patterns import lazy_pattern
from hermes.records import dataclass

_ANSI = lazy_pattern(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # CSI
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\|$)"  # OSC, DCS and other strings
    r"|\x1b[ -/]*[0-~]"
    r"|\x9b[0-?]*[ -/]*[@-~]"
)
_CONTROL = lazy_pattern(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

EXIT_MEANINGS: dict[int, str] = {
    124: "timed out",
    125: "the wrapper program itself failed",
    126: "found but not executable",
    127: "command not found",
    130: "interrupted",
    134: "aborted (SIGABRT)",
    137: "killed (SIGKILL), perhaps out of memory",
    139: "segmentation fault (SIGSEGV)",
    141: "broken pipe (SIGPIPE)",
    143: "terminated (SIGTERM)",
}
_PROGRAM_MEANINGS: dict[tuple[str, int], str] = {
    ("grep", 1): "no lines matched (not an error)",
    ("egrep", 1): "no lines matched (not an error)",
    ("rg", 1): "no lines matched (not an error)",
    ("ag", 1): "no lines matched (not an error)",
    ("diff", 1): "the files differ (not an error)",
    ("cmp", 1): "the files differ (not an error)",
    ("test", 1): "the condition is false",
    ("[", 1): "the condition is false",
    ("find", 1): "some directories could not be read",
    ("pytest", 1): "tests failed",
    ("pytest", 5): "no tests were collected",
    ("curl", 6): "the host could not be resolved",
    ("curl", 7): "the connection failed",
    ("curl", 22): "the server answered with an HTTP error",
    ("curl", 28): "the request timed out",
}


def decode(raw: bytes) -> str:
    """Text without ANSI sequences, NULs and other control characters; invalid UTF-8 becomes U+FFFD."""
    text = raw.decode("utf-8", "replace").replace("\r\n", "\n")
    text = _ANSI.sub("", text)
    if "\r" in text:
        # A progress bar overwrites its line: what a terminal would show is the last writing.
        text = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))
    return _CONTROL.sub("", text)


@dataclass(frozen=True, slots=True)
class Truncated:
    text: str
    cut: int = 0
    """Characters left out of the middle."""


def truncate(text: str, limit: int, *, where: str | None = None) -> Truncated:
    """Head 40 % and tail 60 % of a long text, with a notice between that says how much is missing and where it is."""
    if len(text) <= limit:
        return Truncated(text)
    head = limit * 2 // 5
    tail = limit - head
    cut = len(text) - limit
    place = f"; the full output is in {where}" if where else ""
    notice = f"\n\n[... {cut} of {len(text)} characters left out{place} ...]\n\n"
    return Truncated(f"{text[:head]}{notice}{text[len(text) - tail :]}", cut)


def exit_meaning(program: str, code: int | None) -> str | None:
    """What a well-known exit code means, or None."""
    if code is None or code == 0:
        return None
    return _PROGRAM_MEANINGS.get((program, code)) or EXIT_MEANINGS.get(code)


_INTERACTIVE = frozenset(
    [
        "vi",
        "vim",
        "nvim",
        "nano",
        "emacs",
        "less",
        "more",
        "top",
        "htop",
        "man",
        "ssh",
        "ftp",
        "psql",
        "mysql",
        "python",
        "python3",
        "node",
        "irb",
        "gdb",
        "tmux",
    ]
)


def hint_for(program: str, args: tuple[str, ...], *, pipeline: bool, background: bool, pty: bool) -> str | None:
    """Advice when another way would have been better, or None."""
    if program in _INTERACTIVE and not pty and not args and not pipeline:
        return f"{program} is interactive and has no terminal here; pass its input as arguments, or set pty"
    if background:
        return "to keep a process running use background: true instead of a trailing &; it is ended with this call"
    if pipeline:
        return None
    match program:
        case "cat" | "head" | "tail" if len(args) >= 1 and not any(arg.startswith("-f") for arg in args):
            return "read_file reads files with line numbers and ranges"
        case "sed" if any(arg.startswith(("-i", "--in-place")) for arg in args):
            return "patch edits files and shows the change"
        case "grep" | "rg" | "ag":
            return "search_files searches files with bounded output"
        case "find" if "-name" in args:
            return "search_files with target: files finds files by name"
    return None
