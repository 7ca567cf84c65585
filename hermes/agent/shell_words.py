"""A tolerant reader of shell text: what commands a line would run, with which words, redirections and pipes.

It never runs or expands anything and never fails: text that a shell would refuse is read as far as it makes sense. It
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
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}


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
    """All pipelines of a shell text, in order; groups and compound commands are flattened."""
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
        if not draft.words:
            self.values.update(draft.assignments)
        elif draft.words[0].text in ("export", "declare", "readonly", "local", "typeset"):
            for word in draft.words[1:]:
                name, equals, value = word.text.partition("=")
                if equals and not word.expands:
                    self.values[name] = value
        return draft.finish(background)

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
        if not self.draft.words:
            if not word.quoted and word.text in KEYWORDS:
                return
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
                parts.append(_ansi_c(self._until("'", escapes=True)))
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
            return f"$(({inner}))", False
        if self.text[self.at + 1 : self.at + 2] == "(":
            opener = self.text[self.at]
            inner = self._balanced(self.at + 2)
            self.draft.substitutions.append(inner)
            return f"{opener}({inner})", False
        if self.text.startswith("${", self.at):
            end = self.text.find("}", self.at)
            inner = self.text[self.at + 2 : end if end >= 0 else len(self.text)]
            self.at = end + 1 if end >= 0 else len(self.text)
            return self._variable(inner, f"${{{inner}}}")
        if match := _NAME.match(self.text, self.at + 1):
            self.at = match.end()
            return self._variable(match[0], f"${match[0]}")
        special = self.text[self.at + 1 : self.at + 2]
        if special and special in "$?!#@*-0123456789":
            self.at += 2
            return ("", True) if special.isdigit() or special in "@*" else (f"${special}", False)
        self.at += 1
        return "$", True

    def _variable(self, name: str, shown: str) -> tuple[str, bool]:
        if name == "HOME":
            return "~", True
        if name in self.values:
            return self.values[name], True
        base, dash, default = name.partition(":-")
        if dash and base not in self.values and _NAME.fullmatch(base) and "$" not in default:
            return default, True
        return shown, False

    def _balanced(self, start: int) -> str:
        """The text from ``start`` to the parenthesis that closes it; quotes are honoured."""
        depth, at, quote = 1, start, ""
        while at < len(self.text):
            char = self.text[at]
            if char == "\\":
                at += 1
            elif quote:
                quote = "" if char == quote else quote
            elif char in "'\"":
                quote = char
            elif char == "(":
                depth += 1
            elif char == ")":
                depth -= 1
                if depth == 0:
                    break
            at += 1
        self.at = at + 1
        return self.text[start:at]

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
        # The command is already part of a finished pipeline; replace it there.
        for number in range(len(self.done) - 1, -1, -1):
            pipeline = self.done[number]
            if any(redirect is old for command in pipeline.commands for redirect in command.redirects):
                self.done[number] = Pipeline(tuple(_with_body(command, old, filled) for command in pipeline.commands))
                return


def _with_body(command: SimpleCommand, old: Redirect, new: Redirect) -> SimpleCommand:
    if not any(redirect is old for redirect in command.redirects):
        return command
    redirects = tuple(new if redirect is old else redirect for redirect in command.redirects)
    return SimpleCommand(command.words, command.assignments, redirects, command.substitutions, command.background)


def _ansi_c(text: str) -> str:
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
