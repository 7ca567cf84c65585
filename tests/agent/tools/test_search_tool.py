from __future__ import annotations

import json
import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import ToolFailure
from hermes.agent.tools.search import SearchFiles, read_ripgrep
from hermes.agent.tools.search_walk import Walk, may_take_for_ever
from hermes.nurseries.plugin_process import CHILD
from tests.support.process_probe import zombie_children
from tests.support.tool_context import FakeToolContext, make_services


@pytest.fixture
def ctx(tmp_path: Path) -> FakeToolContext:
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (root / ".git").mkdir()
    (root / "build").mkdir()
    (root / ".gitignore").write_text("build/\n*.log\n!keep.log\n")
    (root / "src/a.py").write_text("import os\n\ndef one():\n    return 1\n")
    (root / "src/b.txt").write_text("one two\n")
    (root / "build/x.py").write_text("def one(): pass\n")
    (root / ".git/config").write_text("one\n")
    (root / "x.log").write_text("one\n")
    (root / "keep.log").write_text("one\n")
    (root / "bin").write_bytes(b"one\0")
    return FakeToolContext(root, tmp_path)


async def search(ctx: FakeToolContext, **arguments: Any) -> dict[str, Any]:
    output = await SearchFiles(make_services(ctx.home.parent)).run(ctx, arguments)
    value: dict[str, Any] = json.loads(output.content)
    return value


async def test_hits_come_with_path_and_line_and_ignored_files_stay_out(ctx: FakeToolContext) -> None:
    value = await search(ctx, pattern=r"\bone\b")
    assert [(hit["path"], hit["line"]) for hit in value["matches"]] == [
        ("keep.log", 1),
        ("src/a.py", 3),
        ("src/b.txt", 1),
    ]
    assert value["total_count"] == 3


async def test_files_are_found_by_glob(ctx: FakeToolContext) -> None:
    assert (await search(ctx, pattern="*.{py,txt}", target="files"))["files"] == ["src/a.py", "src/b.txt"]


async def test_counts_leave_out_files_without_hits(ctx: FakeToolContext) -> None:
    assert (await search(ctx, pattern="one", output_mode="count", file_glob="*.py"))["counts"] == {"src/a.py": 1}


async def test_invalid_pattern_is_an_error(ctx: FakeToolContext) -> None:
    with pytest.raises(ToolFailure, match="regular expression"):
        await search(ctx, pattern="(")


async def test_pages_and_dense_form_of_many_hits(ctx: FakeToolContext) -> None:
    Path(ctx.memory.cwd, "many.txt").write_text("".join(f"hit {n}\n" for n in range(20)))
    value = await search(ctx, pattern="hit", limit=6)
    assert value["text"].splitlines()[0] == "many.txt"
    assert value["truncated"] is True
    assert "offset 6" in value["hint"]
    assert (await search(ctx, pattern="hit", limit=6, offset=18))["matches"][0]["content"] == "hit 18"


async def test_context_lines_belong_to_their_hit(ctx: FakeToolContext) -> None:
    value = await search(ctx, pattern="def one", file_glob="*.py", context=1)
    assert [(hit["line"], hit["content"]) for hit in value["matches"]] == [
        (2, ""),
        (3, "def one():"),
        (4, "    return 1"),
    ]
    assert value["total_count"] == 1


async def test_secrets_are_masked_and_denied_files_not_searched(ctx: FakeToolContext) -> None:
    Path(ctx.memory.cwd, "conf.txt").write_text("API_KEY=abcdef123456\n")
    Path(ctx.memory.cwd, "id_rsa").write_text("API_KEY=zzzzzz123456\n")
    value = await search(ctx, pattern="API_KEY")
    assert [hit["path"] for hit in value["matches"]] == ["conf.txt"]
    assert "abcdef123456" not in value["matches"][0]["content"]


@pytest.mark.parametrize("with_ripgrep", [True, False])
async def test_a_hit_inside_a_private_key_is_masked_whatever_its_file_is_called(
    ctx: FakeToolContext, with_ripgrep: bool
) -> None:
    if with_ripgrep and shutil.which("rg") is None:
        pytest.skip("ripgrep is not installed")
    key = "-----BEGIN PRIVATE KEY-----\r\nMIIEvQ0011\r\nMIIEvQ0022\r\n-----END PRIVATE KEY-----\r\n"
    Path(ctx.memory.cwd, "notes.txt").write_bytes(f"MIIEvQ before\r\n{key}MIIEvQ behind\r\n".encode())
    rg = shutil.which("rg") if with_ripgrep else None
    tool = SearchFiles(make_services(ctx.home.parent, ripgrep=rg))
    value = json.loads((await tool.run(ctx, {"pattern": "MIIEvQ", "context": 1})).content)
    assert "MIIEvQ00" not in json.dumps(value)
    assert "MIIEvQ before" in json.dumps(value) and "MIIEvQ behind" in json.dumps(value)


async def test_search_is_heard_between_slices_when_it_is_cancelled(ctx: FakeToolContext) -> None:
    for index in range(600):
        Path(ctx.memory.cwd, f"f{index}.txt").write_text("x\n")
    with trio.CancelScope() as scope:
        scope.cancel()
        await search(ctx, pattern="x")
    assert scope.cancelled_caught


def test_ripgrep_messages_become_hits_and_broken_lines_are_skipped(tmp_path: Path) -> None:
    walk = Walk(tmp_path, None, None)
    match = {"type": "match", "data": {"path": {"text": "/x/a.py"}, "lines": {"text": "hit\n"}, "line_number": 3}}
    context = {"type": "context", "data": {"path": {"text": "/x/a.py"}, "lines": {"text": "by\n"}, "line_number": 4}}
    read_ripgrep(b"\n".join([json.dumps(match).encode(), b'{"broken', json.dumps(context).encode()]), walk)
    assert [(one.line, one.content, one.hit) for one in walk.found] == [(3, "hit", True), (4, "by", False)]
    assert (walk.files, walk.counts) == (["/x/a.py"], {"/x/a.py": 1})


@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")
@pytest.mark.parametrize("mode", ["content", "files_only", "count"])
@pytest.mark.parametrize("where", [".", "src", "src/a.py"])
async def test_ripgrep_and_the_walker_find_the_same(
    ctx: FakeToolContext, tmp_path: Path, where: str, mode: str
) -> None:
    work = Path(ctx.memory.cwd)
    for name, text in {
        ".gitignore": "ignored/\n*.log\n!kept.log\n",
        "src/a.py": "needle one\nhay\nneedle two\n" + "needle " + "x" * 2000 + "\n",
        "src/deep/b.txt": "no\nneedle\n",
        "src/deep/.gitignore": "c.txt\n",
        "src/deep/c.txt": "needle ignored\n",
        "src/.hidden": "needle hidden\n",
        "ignored/d.py": "needle ignored\n",
        "e.log": "needle ignored\n",
        "kept.log": "needle kept\n",
        ".git/config": "needle of git\n",
        "latin.txt": "needle caf\udce9\n",
        "binary": "a\0needle\n",
    }.items():
        path = work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    found = []
    for ripgrep in (None, shutil.which("rg")):
        tool = SearchFiles(make_services(tmp_path, ripgrep=ripgrep))
        with trio.fail_after(30):
            output = await tool.run(ctx, {"pattern": "needle", "path": where, "output_mode": mode})
        found.append(json.loads(output.content))
    assert found[0] == found[1]
    assert found[0]["total_count"] > 0


RULES = (
    "*.log", "!keep.log", "build/", "/build", "src/*.txt", "src/**/x.py", "**/deep", "deep/**", "a/b", "/a/*/c.txt",
    "?.py", "[ab].txt", "[!ab].py", "\\#odd", "# comment", "  ", "trailing  ", "*.py", "!src/", "!a.py", "x*", "/x.py",
)  # fmt: skip
FOLDERS = ("", "src", "src/deep", "build", "a", "a/b", "a/x", "deep/er", ".hidden", "node_modules", "src/build")
NAMES = ("a.py", "b.txt", "x.py", "c.txt", "y.log", "keep.log", ".env", "#odd", "trailing", "z", "caf\udce9.txt")
TEXTS = (
    b"needle\n",
    b"hay\nneedle at end",
    b"needle\r\nhay\r\nneedle\r\n",
    b"no\n\n\nneedle\n",
    b"needle\0\n",
    b"nothing\n",
    b"",
    b"a\0needle\n",
    b"needle caf\xe9\n",
    b"\xef\xbb\xbfneedle\n",
    "needle\nhay\n".encode("utf-16"),
    b"n" * 9000 + b" needle\n",
    b"needle\n" + b"x" * 200_000 + b"\0",
    b"needle\x0bneedle\x0c\xe2\x80\xa8needle\n",
    b"needle\n" + b"y" * (5 << 20),
    b"needle\n" * 90,
)


def grow(dice: random.Random, work: Path) -> None:
    """A tree with every kind of ignore rule, file and content in it."""
    for folder in FOLDERS:
        (work / folder).mkdir(parents=True, exist_ok=True)
        if dice.random() < 0.5:
            rules = dice.sample(RULES, dice.randint(1, 5))
            (work / folder / dice.choice((".gitignore", ".gitignore", ".ignore"))).write_text("\n".join(rules) + "\n")
        for name in dice.sample(NAMES, 5):
            (work / folder / name).write_bytes(dice.choice(TEXTS))
    for number in range(3):
        target = dice.choice(FOLDERS[1:]) + dice.choice(("", "/a.py"))
        (work / f"link{number}").symlink_to(work / target)


@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")
@pytest.mark.parametrize("seed", range(12))
async def test_ripgrep_and_the_walker_find_the_same_in_any_tree(seed: int, tmp_path: Path) -> None:
    dice = random.Random(seed)
    work = tmp_path / "work"
    grow(dice, work)
    ctx = FakeToolContext(work, tmp_path)
    hits = 0
    for where in (".", dice.choice(FOLDERS[1:])):
        for pattern in ("needle", "^needle$", "need|^$", r"needle\b.*"):
            for more in ({"context": 1}, {"output_mode": "count"}, {"output_mode": "files_only", "file_glob": "*.py"}):
                arguments = {"pattern": pattern, "path": where, "limit": 1000, **more}
                found = []
                for ripgrep in (None, shutil.which("rg")):
                    with trio.fail_after(60):
                        output = await SearchFiles(make_services(tmp_path, ripgrep=ripgrep)).run(ctx, arguments)
                    found.append(json.loads(output.content))
                assert found[0] == found[1], (seed, arguments)
                hits += found[0]["total_count"]
    assert hits > 200


@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")
async def test_both_stop_at_the_same_number_of_hits(ctx: FakeToolContext, tmp_path: Path) -> None:
    for number in range(8):
        Path(ctx.memory.cwd, f"many{number}.txt").write_text("hit\n" * 900)
    found = []
    for ripgrep in (None, shutil.which("rg")):
        tool = SearchFiles(make_services(tmp_path, ripgrep=ripgrep))
        output = await tool.run(ctx, {"pattern": "hit", "offset": 4990, "limit": 1000})
        found.append(json.loads(output.content))
    assert found[0] == found[1]
    assert (found[0]["total_count"], found[0]["truncated"]) == (5000, True)


@pytest.mark.skipif(shutil.which("rg") is None, reason="ripgrep is not installed")
async def test_a_pattern_that_only_python_knows_is_searched_by_the_walker(ctx: FakeToolContext, tmp_path: Path) -> None:
    tool = SearchFiles(make_services(tmp_path, ripgrep=shutil.which("rg")))
    found = json.loads((await tool.run(ctx, {"pattern": r"(?<=def )one"})).content)
    assert [hit["path"] for hit in found["matches"]] == ["src/a.py"]
    with pytest.raises(ToolFailure, match="refused"):
        await tool.run(ctx, {"pattern": "("})


async def test_a_pipe_is_refused_and_not_waited_for(ctx: FakeToolContext, tmp_path: Path) -> None:
    os.mkfifo(Path(ctx.memory.cwd) / "pipe")
    with trio.fail_after(30), pytest.raises(ToolFailure, match="regular file"):
        await SearchFiles(make_services(tmp_path, ripgrep=shutil.which("rg"))).run(
            ctx, {"pattern": "x", "path": "pipe"}
        )


@pytest.mark.parametrize(
    ("pattern", "risky"),
    [
        ("plain text", False),
        ("a.b", False),
        (r"f\(x\)\.y", False),
        ("(a+)+$", True),
        (".*.*=.*", True),
        (r"\bone\b", True),
        ("a|b", True),
        ("(?=a)b", True),
    ],
)
def test_only_a_plain_text_is_looked_for_in_the_server_itself(pattern: str, risky: bool) -> None:
    assert may_take_for_ever(pattern) is risky


@pytest.mark.parametrize("ripgrep", [None, shutil.which("rg")], ids=["walker", "ripgrep"])
async def test_a_pattern_that_takes_for_ever_is_stopped_and_holds_nobody_up(
    ripgrep: str | None, ctx: FakeToolContext, tmp_path: Path
) -> None:
    (tmp_path / "work/long.txt").write_text("a" * 60 + "b\n")
    tool = SearchFiles(make_services(tmp_path, ripgrep=ripgrep, child=CHILD))
    with trio.fail_after(60), trio.move_on_after(2) as limit:
        await tool.run(ctx, {"pattern": "(?=a)(a+)+$"})
    assert limit.cancelled_caught
    assert zombie_children() == []


async def test_a_search_in_a_process_finds_what_the_walk_finds(ctx: FakeToolContext, tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff.txt")
    (tmp_path / "work" / name).write_text("a one\n")
    for arguments in ({}, {"context": 1}, {"output_mode": "count"}, {"file_glob": "*.py"}):
        wanted = {"pattern": r"\bone\b", **arguments}
        alone, here = [
            json.loads((await SearchFiles(services).run(ctx, wanted)).content)
            for services in (make_services(tmp_path, child=CHILD), make_services(tmp_path))
        ]
        assert alone == here and alone["total_count"] > 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"path": "x" * 5000}, "cannot be searched"),
        ({"path": "a\0b"}, "cannot contain a NUL"),
        ({"path": ""}, None),
        ({"limit": -3, "offset": -7, "context": -2}, None),
        ({"limit": 10**12, "offset": 10**12, "context": 10**12}, None),
        ({"file_glob": "[" * 300}, None),
        ({"file_glob": "{" * 300}, None),
        ({"file_glob": "{a,b}" * 300}, None),
        ({"file_glob": "{" + "a," * 300 + "}"}, None),
        ({"file_glob": "*a" * 300}, None),
    ],
)
async def test_arguments_that_make_no_sense_are_told_or_do_no_harm(
    arguments: dict[str, Any], told: str | None, ctx: FakeToolContext
) -> None:
    if told is None:
        assert "total_count" in await search(ctx, pattern="one", **arguments)
    else:
        with pytest.raises(ToolFailure, match=told):
            await search(ctx, pattern="one", **arguments)
