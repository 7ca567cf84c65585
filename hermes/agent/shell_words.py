"""A tolerant reader of shell text: what commands a line would run, with which words, redirections and pipes.

It never runs or expands anything; text that a shell would refuse is read as far as it makes sense, and only text that
grows without bound while it is read is refused (`TooMuchText`). It
undoes what hides a command's name from a reader: quotes, backslashes, line continuations, ``$IFS``, ``$'\\x72m'``,
constant variables set in the same text, simple brace lists, look-alike characters of Unicode (NFKC). What a quoted word
means is left to the caller.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import field

from hermes.patterns import lazy_pattern
from hermes.records import dataclass

KEYWORDS = frozenset(
    {"if", "then", "else", "elif", "fi", "do", "done", "while", "until", "{", "}", "!", "time", "esac", "coproc"}
)
_OPERATORS = ("&&", "||", ";;", ";", "|&", "|", "&", "\n", "(", ")")
_REDIRECTS = ("&>>", "&>", "<<<", "<<-", "<<", ">>", ">|", ">&", "<&", "<>", ">", "<")
_ASSIGNMENT = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_NAME = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_PARAMETER = lazy_pattern(r"([A-Za-z_][A-Za-z0-9_]*|@|\*)(\[[@*]\]|:?[-=?+]|[%#/^,:]|)(.*)", re.S)
EACH = "\0"
"""Between the values that a variable of a loop takes one after the other."""
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}


_MOST_EXPANDED = 1_000_000
_MOST_HERE_DOCUMENTS = 500


class TooMuchText(Exception):
    """The text stands for more than is read of it: variables that double each other, thousands of here-documents."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word. ``expands`` tells that an unquoted variable or substitution in it could become anything."""

    text: str
    quoted: bool = False
    expands: bool = False


@dataclass(frozen=True, slots=True)
class Redirect:
    """``op`` without the descriptor number; ``body`` is the text of a here-document or here-string."""

    op: str
    target: Word
    body: str | None = None

    @property
    def writes(self) -> bool:
        return ">" in self.op


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One command of a pipeline, without what it is piped to."""

    words: tuple[Word, ...]
    assignments: tuple[tuple[str, str], ...] = ()
    redirects: tuple[Redirect, ...] = ()
    substitutions: tuple[str, ...] = ()
    """The inner text of ``$(…)``, backticks, ``<(…)`` in its words."""
    background: bool = False

    @property
    def name(self) -> str:
        """The program's base name, lower case."""
        return self.words[0].text.rsplit("/", 1)[-1].lower() if self.words else ""

    @property
    def args(self) -> tuple[str, ...]:
        return tuple(word.text for word in self.words[1:])


@dataclass(frozen=True, slots=True)
class Pipeline:
    commands: tuple[SimpleCommand, ...]


def normalize(text: str) -> str:
    """The text with Unicode look-alikes folded, invisible characters removed and continuation lines joined."""
    folded = unicodedata.normalize("NFKC", text)
    visible = "".join(char for char in folded if unicodedata.category(char) != "Cf")
    joined = visible.replace("\\\r\n", "").replace("\\\n", "")
    return re.sub(r"\$\{IFS[^}]*\}|\$IFS(?:\$[0-9])?(?![A-Za-z0-9_])", " ", joined)


def read_pipelines(text: str) -> tuple[Pipeline, ...]:
    """All pipelines of a shell text, in order; groups and compound commands are flattened. May raise `TooMuchText`."""
    return _Reader(normalize(text)).read()


@dataclass(slots=True)
class _Draft:
    words: list[Word] = field(default_factory=list)
    assignments: list[tuple[str, str]] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    substitutions: list[str] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.words or self.assignments or self.redirects)

    def finish(self, background: bool) -> SimpleCommand:
        return SimpleCommand(
            tuple(self.words),
            tuple(self.assignments),
            tuple(self.redirects),
            tuple(self.substitutions),
            background,
        )


class _Reader:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.draft = _Draft()
        self.pipeline: list[SimpleCommand] = []
        self.done: list[Pipeline] = []
        self.values: dict[str, str] = {}
        self.here_documents: list[tuple[str, bool, _Draft, int]] = []
        self.timed = False
        self.expanded = 0

    def read(self) -> tuple[Pipeline, ...]:
        while self.at < len(self.text):
            self._step()
        self._end_pipeline(background=False)
        return tuple(self.done)

    def _step(self) -> None:
        char = self.text[self.at]
        if char in " \t\r":
            self.at += 1
        elif char == "#" and self._at_word_start():
            self.at = self._line_end()
        elif (redirect := self._starts(_REDIRECTS)) and not self._starts(("<(", ">(")):
            self._read_redirect(redirect)
        elif (
            char.isdigit() and (found := re.compile(r"\d+(?=[<>])").match(self.text, self.at)) and self._at_word_start()
        ):
            self.at = found.end()
        elif operator := self._starts(_OPERATORS):
            self.at += len(operator)
            self._operator(operator)
        else:
            self._take_word(self._read_word())

    def _starts(self, options: Sequence[str]) -> str:
        return next((option for option in options if self.text.startswith(option, self.at)), "")

    def _at_word_start(self) -> bool:
        return self.at == 0 or self.text[self.at - 1] in " \t\n;&|()"

    def _line_end(self) -> int:
        found = self.text.find("\n", self.at)
        return len(self.text) if found < 0 else found

    def _operator(self, operator: str) -> None:
        if operator in ("|", "|&"):
            if not self.draft.empty:
                self.pipeline.append(self._end_command(background=False))
            return
        if operator == "(" and self.draft.words and not self.draft.words[-1].quoted:
            # `name (` begins a function definition; its body is read like any other commands.
            self.draft.words.pop()
        self._end_pipeline(background=operator == "&")
        if operator == "\n":
            self._read_here_documents()

    def _end_command(self, *, background: bool) -> SimpleCommand:
        draft, self.draft = self.draft, _Draft()
        self._note_values(draft)
        return draft.finish(background)

    def _note_values(self, draft: _Draft) -> None:
        """Remember what constant values this command gives to variables."""
        texts = [word.text for word in draft.words]
        match texts[:1]:
            case []:
                self.values.update(draft.assignments)
            case ["export" | "declare" | "readonly" | "local" | "typeset"]:
                for word in draft.words[1:]:
                    name, equals, value = word.text.partition("=")
                    if equals and not word.expands:
                        self.values[name] = value
            case ["set"] if "--" in texts:
                self.values["@"] = EACH.join(texts[texts.index("--") + 1 :])
            case ["read"] if len(texts) > 1:
                said = next((redirect.body for redirect in draft.redirects if redirect.op == "<<<"), None)
                if said is not None:
                    self.values[texts[-1]] = said
            case ["for" | "select"] if texts[2:3] == ["in"]:
                # Each item in its turn: a word that uses the variable is read as all of them.
                self.values[texts[1]] = EACH.join(texts[3:])
            case _:
                pass

    def _end_pipeline(self, *, background: bool) -> None:
        if not self.draft.empty:
            self.pipeline.append(self._end_command(background=background))
        if self.pipeline:
            self.done.append(Pipeline(tuple(self.pipeline)))
            self.pipeline = []

    # --- words -------------------------------------------------------------------------------------------------------

    def _take_word(self, word: Word) -> None:
        if not word.text and not word.quoted:
            return
        if word.text == "{" and not word.quoted and [one.text for one in self.draft.words[:1]] == ["function"]:
            self.draft = _Draft()
            return
        if EACH in word.text:
            for text in word.text.split(EACH):
                self._take_word(Word(text, word.quoted, word.expands))
            return
        if not self.draft.words:
            if not word.quoted and word.text in KEYWORDS:
                self.timed = word.text == "time"
                return
            if self.timed and word.text in ("-p", "--"):
                return
            self.timed = False
            if match := _ASSIGNMENT.match(word.text):
                self.draft.assignments.append((match[0].rstrip("+="), word.text[match.end() :]))
                return
        if not word.quoted and not word.expands and "{" in word.text:
            self.draft.words.extend(Word(text) for text in _brace_list(word.text))
        else:
            self.draft.words.append(word)

    def _read_word(self) -> Word:
        parts: list[str] = []
        quoted = expands = False
        while self.at < len(self.text):
            char = self.text[self.at]
            if char in " \t\r\n;&|<>()" and not self._starts(("<(", ">(")):
                break
            if char == "\\":
                parts.append(self.text[self.at + 1 : self.at + 2])
                self.at += 2
            elif char == "'":
                parts.append(self._until("'"))
                quoted = True
            elif char == '"':
                parts.append(self._double_quoted())
                quoted = True
            elif self.text.startswith("$'", self.at):
                self.at += 1
                parts.append(unescape(self._until("'", escapes=True)))
                quoted = True
            elif char in "$`" or self._starts(("<(", ">(")):
                value, known = self._expansion()
                parts.append(value)
                if known and " " in value and not quoted:
                    self._split_known("".join(parts))
                    parts = [value.rsplit(" ", 1)[-1]]
                expands = expands or not known
            else:
                parts.append(char)
                self.at += 1
        return Word("".join(parts), quoted, expands)

    def _split_known(self, text: str) -> None:
        for piece in text.split()[:-1]:
            self._take_word(Word(piece))

    def _until(self, end: str, *, escapes: bool = False) -> str:
        start = self.at = self.at + 1
        while self.at < len(self.text) and self.text[self.at] != end:
            self.at += 2 if escapes and self.text[self.at] == "\\" else 1
        inner = self.text[start : self.at]
        self.at += 1
        return inner

    def _double_quoted(self) -> str:
        parts: list[str] = []
        self.at += 1
        while self.at < len(self.text) and self.text[self.at] != '"':
            char = self.text[self.at]
            if char == "\\" and self.text[self.at + 1 : self.at + 2] in ('"', "\\", "$", "`"):
                parts.append(self.text[self.at + 1])
                self.at += 2
            elif char in "$`":
                parts.append(self._expansion()[0])
            else:
                parts.append(char)
                self.at += 1
        self.at += 1
        return "".join(parts)

    def _expansion(self) -> tuple[str, bool]:
        """(text, whether it is known) of what stands at a ``$``, a backtick or ``<(``."""
        if self.text[self.at] == "`":
            inner = self._until("`", escapes=True)
            self.draft.substitutions.append(inner.replace("\\`", "`"))
            return f"$({inner})", False
        if self.text.startswith("$((", self.at):
            inner = self._balanced(self.at + 2)
            self.draft.substitutions += substitutions_in(inner)
            return f"$(({inner}))", False
        if self.text[self.at + 1 : self.at + 2] == "(":
            opener = self.text[self.at]
            inner = self._balanced(self.at + 2)
            self.draft.substitutions.append(inner)
            return f"{opener}({inner})", False
        if self.text.startswith("${", self.at):
            inner = self._balanced(self.at + 2, "{", "}")
            self.draft.substitutions += substitutions_in(inner)
            return self._variable(inner, f"${{{inner}}}")
        if match := _NAME.match(self.text, self.at + 1):
            self.at = match.end()
            return self._variable(match[0], f"${match[0]}")
        special = self.text[self.at + 1 : self.at + 2]
        if special and special in "$?!#@*-0123456789":
            self.at += 2
            if special in "@*":
                return self._counted(self.values.get("@", "")), True
            return ("", True) if special.isdigit() else (f"${special}", False)
        self.at += 1
        return "$", True

    def _variable(self, name: str, shown: str) -> tuple[str, bool]:
        parsed = _PARAMETER.fullmatch(name)
        if parsed is None:
            return shown, False
        base, operator, default = parsed.groups()
        if base == "HOME":
            return "~", True
        if base in self.values and operator in ("", ":-", "-", ":=", "=", ":?", "?"):
            return self._counted(self.values[base]), True
        if base not in self.values and operator in (":-", "-", ":=", "=") and "$" not in default and "`" not in default:
            return default, True
        return shown, False

    def _counted(self, value: str) -> str:
        self.expanded += len(value)
        if self.expanded > _MOST_EXPANDED:
            raise TooMuchText
        return value

    def _balanced(self, start: int, opener: str = "(", closer: str = ")") -> str:
        """The text from ``start`` to the bracket that closes it."""
        inner = _until_closed(self.text, start, opener, closer)
        self.at = start + len(inner) + 1
        return inner

    # --- redirections ------------------------------------------------------------------------------------------------

    def _read_redirect(self, op: str) -> None:
        self.at += len(op)
        while self.text[self.at : self.at + 1] in (" ", "\t"):
            self.at += 1
        start = self.at
        target = self._read_word()
        if self.at == start and op not in ("<<", "<<-"):
            return
        if op in ("<<", "<<-"):
            self.draft.redirects.append(Redirect(op, target, ""))
            if len(self.here_documents) >= _MOST_HERE_DOCUMENTS:
                raise TooMuchText
            self.here_documents.append((target.text, op == "<<-", self.draft, len(self.draft.redirects) - 1))
        elif op == "<<<":
            self.draft.redirects.append(Redirect(op, target, target.text))
        elif not (op in (">&", "<&") and re.fullmatch(r"\d+-?|-", target.text)):
            self.draft.redirects.append(Redirect(op, target))

    def _read_here_documents(self) -> None:
        waiting, self.here_documents = self.here_documents, []
        for end_word, strip_tabs, draft, index in waiting:
            lines: list[str] = []
            while self.at < len(self.text):
                end = self._line_end()
                line = self.text[self.at : end]
                self.at = end + 1
                if (line.lstrip("\t") if strip_tabs else line) == end_word:
                    break
                lines.append(line)
            body = "\n".join(lines)
            self._fill_here_document(draft, index, body)

    def _fill_here_document(self, draft: _Draft, index: int, body: str) -> None:
        old = draft.redirects[index]
        filled = Redirect(old.op, old.target, body)
        draft.redirects[index] = filled
        run = () if old.target.quoted else substitutions_in(body)
        draft.substitutions += run
        # The command is already part of a finished pipeline; replace it there.
        for number in range(len(self.done) - 1, -1, -1):
            pipeline = self.done[number]
            if any(redirect is old for command in pipeline.commands for redirect in command.redirects):
                self.done[number] = Pipeline(tuple(_with_body(one, old, filled, run) for one in pipeline.commands))
                return


def _with_body(command: SimpleCommand, old: Redirect, new: Redirect, run: tuple[str, ...]) -> SimpleCommand:
    if not any(redirect is old for redirect in command.redirects):
        return command
    redirects = tuple(new if redirect is old else redirect for redirect in command.redirects)
    inner = (*command.substitutions, *run)
    return SimpleCommand(command.words, command.assignments, redirects, inner, command.background)


def substitutions_in(text: str) -> tuple[str, ...]:
    """The commands that a shell runs while it expands this text: ``$(…)`` and backticks, outer ones only."""
    found: list[str] = []
    at = 0
    while at < len(text):
        if text[at] == "\\":
            at += 2
        elif text[at] == "`":
            end = text.find("`", at + 1)
            end = len(text) if end < 0 else end
            found.append(text[at + 1 : end])
            at = end + 1
        elif text.startswith("$(", at) and not text.startswith("$((", at):
            inner = _until_closed(text, at + 2, "(", ")")
            found.append(inner)
            at += len(inner) + 3
        else:
            at += 1
    return tuple(found)


def _until_closed(text: str, start: int, opener: str, closer: str) -> str:
    """The text from ``start`` to the bracket that closes it; quotes are honoured."""
    depth, at, quote = 1, start, ""
    while at < len(text):
        char = text[at]
        if char == "\\":
            at += 1
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == opener:
            depth += 1
        elif char == closer:
            depth -= 1
            if depth == 0:
                break
        at += 1
    return text[start:at]


def unescape(text: str) -> str:
    """What ``$'…'``, ``printf`` and ``echo -e`` make of backslashes."""

    def replace(match: re.Match[str]) -> str:
        code = match[1]
        if code[0] == "x":
            return chr(int(code[1:], 16))
        if code[0] in "uU":
            return chr(min(int(code[1:], 16), 0x10FFFF))
        if code[0].isdigit():
            return chr(int(code, 8))
        return _ESCAPES.get(code, code)

    return re.sub(r"\\(x[0-9A-Fa-f]{1,2}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|.)", replace, text, flags=re.S)


def _brace_list(text: str) -> list[str]:
    match = re.fullmatch(r"([^{}]*)\{([^{}]*,[^{}]*)\}([^{}]*)", text)
    if match is None:
        return [text]
    return [f"{match[1]}{item}{match[3]}" for item in match[2].split(",")[:32]]
