"""patch: the match ladder and where it ends, V4A, atomicity."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from hermes.agent.ports import ToolFailure
from hermes.agent.redaction import SENTINEL
from hermes.agent.tools.files import ReadFile
from hermes.agent.tools.patch import Patch
from hermes.agent.tools.patch_match import find
from hermes.agent.tools.patch_v4a import BadPatch, parse
from tests.support.tool_context import FakeToolContext, make_services


@pytest.fixture
def ctx(tmp_path: Path) -> FakeToolContext:
    return FakeToolContext(tmp_path, tmp_path)


async def patch(ctx: FakeToolContext, **arguments: Any) -> dict[str, Any]:
    output = await Patch(make_services(ctx.home.parent)).run(ctx, arguments)
    value: dict[str, Any] = json.loads(output.content)
    return value


async def refused(awaitable: Any) -> dict[str, Any]:
    with pytest.raises(ToolFailure) as caught:
        await awaitable
    value: dict[str, Any] = json.loads(caught.value.content)
    return value


LADDER = (
    ("exact", "a = 1\n", "a = 1", "a = 2", "a = 2\n"),
    ("trailing whitespace ignored", "a = 1   \nb = 2\n", "a = 1\nb = 2", "c", "c\n"),
    (
        "surrounding whitespace ignored",
        "    if x:\n        y()\n",
        "if x:\n    y()",
        "if z:\n    y()",
        "    if z:\n        y()\n",
    ),
    ("inner whitespace normalised", "x  =   1\n", "x = 1", "x = 2", "x = 2\n"),
    ("escapes resolved", 'say("a")\nb\n', 'say(\\"a\\")\\nb', "c", "c\n"),
    ("outer blank lines trimmed", "one\ntwo\n", "\n\none\n\n", "1", "1\ntwo\n"),
    ("Unicode look-alikes folded", "it’s — “so”\n", 'it\'s - "so"', "x", "x\n"),
)


@pytest.mark.parametrize(("strategy", "before", "old", "new", "after"), LADDER)
async def test_ladder_finds_the_text_and_tells_how(
    ctx: FakeToolContext, tmp_path: Path, strategy: str, before: str, old: str, new: str, after: str
) -> None:
    (tmp_path / "f.txt").write_text(before)
    value = await patch(ctx, path="f.txt", old_string=old, new_string=new)
    assert (tmp_path / "f.txt").read_text() == after
    assert value["success"] is True
    if strategy == "exact":
        assert "note" not in value
    else:
        assert strategy in value["note"]


@pytest.mark.parametrize(
    ("before", "old"),
    [
        ("limit = 10\n", "limit = 99"),
        ("limit = 10\nother = 99\n", "limit = 99\n"),
        ("def load(path):\n    pass\n", "def save(path):\n    pass"),
        ("a\nb\nc\n", "a\nx\nc"),
    ],
)
async def test_text_that_only_resembles_the_wanted_one_is_never_edited(
    ctx: FakeToolContext, tmp_path: Path, before: str, old: str
) -> None:
    (tmp_path / "f.txt").write_text(before)
    value = await refused(patch(ctx, path="f.txt", old_string=old, new_string="CHANGED"))
    assert (tmp_path / "f.txt").read_text() == before
    assert value["success"] is False
    assert value["closest_line"] >= 1


async def test_several_matches_are_refused_with_their_lines_unless_all_are_wanted(
    ctx: FakeToolContext, tmp_path: Path
) -> None:
    (tmp_path / "f.txt").write_text("x\ny\nx\n")
    assert (await refused(patch(ctx, path="f.txt", old_string="x", new_string="z")))["lines"] == [1, 3]
    value = await patch(ctx, path="f.txt", old_string="x", new_string="z", replace_all=True)
    assert value["replacements"] == 2
    assert (tmp_path / "f.txt").read_text() == "z\ny\nz\n"


async def test_inexact_match_must_be_unique_even_with_replace_all(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("x  = 1\nx   = 1\n")
    await refused(patch(ctx, path="f.txt", old_string="x = 1", new_string="z", replace_all=True))
    assert (tmp_path / "f.txt").read_text() == "x  = 1\nx   = 1\n"


async def test_equal_strings_change_nothing(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("x")
    assert (await patch(ctx, path="f.txt", old_string="x", new_string="x"))["no_change"] is True


async def test_line_endings_and_missing_final_newline_are_kept(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_bytes(b"a\r\nb\r\nc")
    await patch(ctx, path="f.txt", old_string="a\nb", new_string="1\n2")
    assert (tmp_path / "f.txt").read_bytes() == b"1\r\n2\r\nc"


async def test_diff_headers_have_no_doubled_slash(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/f.txt").write_text("a\n")
    value = await patch(ctx, path=str(tmp_path / "sub/f.txt"), old_string="a", new_string="b")
    assert value["diff"].splitlines()[:2] == ["--- a/sub/f.txt", "+++ b/sub/f.txt"]


async def test_masked_secret_is_no_text_to_replace(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "f.env").write_text("API_KEY=abcdef123456\n")
    shown = json.loads((await ReadFile(make_services(tmp_path)).run(ctx, {"path": "f.env"})).content)["content"]
    old = shown.partition("|")[2]
    assert SENTINEL in old
    await refused(patch(ctx, path="f.env", old_string=old, new_string="API_KEY=x"))
    assert (tmp_path / "f.env").read_text() == "API_KEY=abcdef123456\n"


async def test_edit_snapshot_is_attached_for_hosts(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("a\n")
    output = await Patch(make_services(tmp_path)).run(ctx, {"path": "f.txt", "old_string": "a", "new_string": "b"})
    (diff,) = output.diffs
    assert (diff.path, diff.old_text, diff.new_text) == (str(tmp_path / "f.txt"), "a\n", "b\n")
    assert output.details is not None
    assert output.details["diffs"][0]["path"] == str(tmp_path / "f.txt")


V4A = """*** Begin Patch
*** Update File: a.py
@@ def second():
 def second():
-    return 1
+    return 2
*** Add File: new/b.py
+print("hi")
*** Delete File: c.py
*** Update File: d.py
*** Move to: e.py
@@
-old
+new
*** End Patch"""


async def test_v4a_patch_updates_adds_deletes_and_moves(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def first():\n    return 1\n\n\ndef second():\n    return 1\n")
    (tmp_path / "c.py").write_text("gone\n")
    (tmp_path / "d.py").write_bytes(b"x\r\nold\r\n")
    value = await patch(ctx, mode="patch", patch=V4A)
    assert (tmp_path / "a.py").read_text().endswith("def second():\n    return 2\n")
    assert "def first():\n    return 1\n" in (tmp_path / "a.py").read_text()
    assert (tmp_path / "new/b.py").read_text() == 'print("hi")\n'
    assert not (tmp_path / "c.py").exists()
    assert not (tmp_path / "d.py").exists()
    assert (tmp_path / "e.py").read_bytes() == b"x\r\nnew\r\n"
    assert [Path(path).name for path in value["files_created"]] == ["b.py", "e.py"]
    assert [Path(path).name for path in value["files_deleted"]] == ["c.py", "d.py"]


async def test_v4a_patch_with_one_bad_hunk_writes_nothing(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("one\n")
    (tmp_path / "b.py").write_text("limit = 10\n")
    text = (
        "*** Begin Patch\n*** Update File: a.py\n-one\n+1\n"
        "*** Update File: b.py\n-limit = 99\n+limit = 5\n*** End Patch"
    )
    value = await refused(patch(ctx, patch=text))
    assert "Nothing was written" in value["error"]
    assert (tmp_path / "a.py").read_text() == "one\n"
    assert (tmp_path / "b.py").read_text() == "limit = 10\n"


@pytest.mark.parametrize("target", ["../" * 20 + "etc/passwd", "/etc/passwd", ".hermes/.env", ".ssh/id_rsa"])
async def test_v4a_targets_obey_the_rules_of_writes(ctx: FakeToolContext, tmp_path: Path, target: str) -> None:
    (tmp_path / "ok.py").write_text("x\n")
    text = f"*** Begin Patch\n*** Update File: ok.py\n-x\n+y\n*** Add File: {target}\n+x\n*** End Patch"
    assert "denied" in (await refused(patch(ctx, patch=text)))["error"]
    assert (tmp_path / "ok.py").read_text() == "x\n"


@pytest.mark.parametrize(
    "second",
    [
        "*** Add File: c.py\n+three",
        "*** Update File: b.py\n*** Move to: c.py\n-two\n+2",
    ],
    ids=["add", "move"],
)
async def test_two_changes_with_one_target_are_refused_and_nothing_is_lost(
    second: str, ctx: FakeToolContext, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("one\n")
    (tmp_path / "b.py").write_text("two\n")
    move = "*** Update File: a.py\n*** Move to: c.py\n-one\n+1"
    for order in ((move, second), (second, move)):
        value = await refused(patch(ctx, patch="\n".join(("*** Begin Patch", *order, "*** End Patch"))))
        assert "c.py exists already" in value["error"]
        assert (tmp_path / "a.py").read_text() == "one\n" and (tmp_path / "b.py").read_text() == "two\n"
        assert not (tmp_path / "c.py").exists()


async def test_a_text_that_is_there_a_million_times_is_replaced_at_once(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("ab" * 1_000_000)
    with trio.fail_after(60):
        value = await patch(ctx, path="a.txt", old_string="a", new_string="c", replace_all=True)
        assert value["replacements"] == 1_000_000
        value = await refused(patch(ctx, path="a.txt", old_string="b", new_string="d"))
        assert "1000000 times" in value["error"] and len(value["lines"]) == 50
    assert (tmp_path / "a.txt").read_text() == "cb" * 1_000_000


async def test_a_patch_of_many_hunks_hears_that_it_is_cancelled(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("".join(f"line {number:06}  \n" for number in range(200_000)))
    hunks = "\n".join(f"@@\n-line {number:06}\n+row {number}" for number in range(5000))
    with trio.fail_after(120), trio.move_on_after(0.5) as limit:
        await patch(ctx, patch=f"*** Begin Patch\n*** Update File: a.txt\n{hunks}\n*** End Patch")
    assert limit.cancelled_caught
    assert (tmp_path / "a.txt").read_text().startswith("line 000000  \n")


async def test_v4a_ambiguous_hunk_is_refused_until_an_anchor_tells_which(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    x\ndef g():\n    x\n")
    await refused(patch(ctx, patch="*** Begin Patch\n*** Update File: a.py\n-    x\n+    y\n*** End Patch"))
    await patch(ctx, patch="*** Begin Patch\n*** Update File: a.py\n@@ def g():\n-    x\n+    y\n*** End Patch")
    assert (tmp_path / "a.py").read_text() == "def f():\n    x\ndef g():\n    y\n"


async def test_v4a_removed_lines_leave_no_blank_line(ctx: FakeToolContext, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("a\nb\nc\n")
    await patch(ctx, patch="*** Begin Patch\n*** Update File: a.py\n-b\n*** End Patch")
    assert (tmp_path / "a.py").read_text() == "a\nc\n"


@pytest.mark.parametrize(
    "text", ["", "hello", "*** Begin Patch\n*** End Patch", "*** Update File: x\n!bad", "*** Update File: x"]
)
def test_text_that_is_no_patch_is_refused(text: str) -> None:
    with pytest.raises(BadPatch):
        parse(text)


def test_blank_text_matches_nothing() -> None:
    assert find("a\n\nb\n", " \n \n") is None
