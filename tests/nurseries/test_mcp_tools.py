"""Names, schemas and results of MCP tools, and how servers are described: pure functions, row by row."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from hermes.agent.ports import ParallelClass, ToolOutput
from hermes.nurseries.mcp_bridge import mended
from hermes.nurseries.mcp_config import (
    McpServerConfig,
    client_servers,
    configured_servers,
    revision,
    server_environment,
)
from hermes.nurseries.mcp_tools import (
    MAX_SCHEMA_NODES,
    MAX_TOOLS,
    plain_schema,
    tool_name,
    tool_output,
    tools_from_listing,
)


class NoServer:
    def __init__(self, config: McpServerConfig) -> None:
        self.config = config

    async def call(self, tool: str, arguments: Mapping[str, Any], on_progress: Callable[[str], None]) -> ToolOutput:
        raise AssertionError


# --- names ---


@pytest.mark.parametrize(
    ("server", "tool", "name"),
    [
        ("files", "read", "mcp__files__read"),
        ("my files", "read/all.now", "mcp__my_files__read_all_now"),
        ("données", "lire-tout", "mcp__donn_es__lire-tout"),
    ],
)
def test_a_name_holds_server_and_tool(server: str, tool: str, name: str) -> None:
    assert tool_name(server, tool) == name


def test_a_long_name_is_cut_and_stays_distinct() -> None:
    one, other = tool_name("s", "t" * 80 + "1"), tool_name("s", "t" * 80 + "2")
    assert one != other
    assert {len(one), len(other)} == {64}
    assert re.fullmatch(r"[A-Za-z0-9_-]+", one)
    assert one == tool_name("s", "t" * 80 + "1")


def test_two_tools_that_would_share_a_name_both_have_one() -> None:
    tools = tools_from_listing(NoServer(McpServerConfig("s", command="c")), [{"name": "a.b"}, {"name": "a_b"}]).tools
    assert [tool.remote_name for tool in tools] == ["a.b", "a_b"]
    assert len({tool.spec.name for tool in tools}) == 2


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        (None, "no. 1 (it is not an object)"),
        ({"inputSchema": {}}, "no. 1 (it has no name)"),
        ({"name": ""}, "no. 1 (it has no name)"),
        ({"name": ["a"]}, "no. 1 (it has no name)"),
        ({"name": "a", "inputSchema": []}, "'a' (its inputSchema is not the schema of an object)"),
        ({"name": "a", "inputSchema": {"type": None}}, "'a' (its inputSchema is not the schema of an object)"),
        (
            {"name": "a", "inputSchema": {"properties": ["b"]}},
            "'a' (the properties of its inputSchema are not schemas)",
        ),
        ({"name": "n" * 70, "inputSchema": 1}, f"'{'n' * 60}'… (its inputSchema is not the schema of an object)"),
    ],
)
def test_a_tool_that_cannot_be_used_is_named_and_costs_no_other(entry: Any, told: str) -> None:
    offer = tools_from_listing(NoServer(McpServerConfig("s", command="c")), [entry, {"name": "good"}])
    assert [tool.remote_name for tool in offer.tools] == ["good"]
    assert offer.notice == f"tools that cannot be used: {told}"


def test_a_tool_that_is_listed_twice_or_whose_every_name_is_taken_is_left_out() -> None:
    server = NoServer(McpServerConfig("s", command="c"))
    taken = tool_name("s", "a.b", distinct=True).removeprefix("mcp__s__")
    offer = tools_from_listing(server, [{"name": name} for name in (taken, "a_b", "a.b", "a_b")])
    assert [tool.remote_name for tool in offer.tools] == [taken, "a_b"]
    assert offer.notice.endswith("'a.b' (its name would be that of another tool), 'a_b' (it is there twice)")


def test_a_listing_without_end_is_cut_and_what_is_wrong_with_it_is_told_in_a_few_words() -> None:
    server = NoServer(McpServerConfig("s", command="c"))
    offer = tools_from_listing(server, [{"name": f"t{number}"} for number in range(MAX_TOOLS + 3)])
    assert (len(offer.tools), offer.notice) == (
        MAX_TOOLS,
        "tools that cannot be used: all from 't512' on (more than 512 are too many)",
    )
    assert tools_from_listing(server, [None] * 100_000).notice.endswith("and 99995 more")


def test_what_the_configuration_leaves_out_is_not_told_as_a_fault() -> None:
    config = McpServerConfig("s", command="c", exclude=("bad",))
    assert tools_from_listing(NoServer(config), [{"name": "bad", "inputSchema": 1}]).notice == ""


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"a": "half \\ud83d"}', '{"a": "half \ufffd"}'),
        (b'{"a": "\\udc00\\ud83d\\ude42"}', '{"a": "\ufffd\U0001f642"}'),
        (b'{"a": "\xff"}', '{"a": "\ufffd"}'),
        (b'{"a": "\\\\ud83d"}', '{"a": "\\\\ud83d"}'),
        (b"not json \xff", ""),
        (b'{"a": "sound"}', ""),
        (b"[" * 100_000 + b"\xff", ""),
    ],
)
def test_half_a_character_costs_the_character_and_not_the_message(line: bytes, message: str) -> None:
    assert mended(line).decode() == message


def test_only_tools_that_the_configuration_lets_through_are_offered() -> None:
    config = McpServerConfig("s", command="c", include=("read_*", "write"), exclude=("read_secret",), parallel=True)
    listing = [{"name": name} for name in ("read_file", "read_secret", "write", "delete")]
    tools = tools_from_listing(NoServer(config), listing).tools
    assert [tool.remote_name for tool in tools] == ["read_file", "write"]
    assert tools[0].flags.parallel is ParallelClass.FREE


# --- schemas ---


def test_references_are_put_in_place() -> None:
    schema = {
        "$schema": "x",
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A", "description": "the a"}},
        "required": ["a"],
        "$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/B"}}, "B": {"type": "string"}},
    }
    assert plain_schema(schema) == {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "string"}, "description": "the a"}},
        "required": ["a"],
    }


def test_a_schema_that_refers_to_itself_ends() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Node"}, "self": {"$ref": "#"}}}
    plain = plain_schema({"type": "object", "properties": {"n": {"$ref": "#/$defs/Node"}}, "$defs": {"Node": node}})
    assert "$ref" not in repr(plain)
    assert plain["properties"]["n"]["properties"]["next"] == {}


@pytest.mark.parametrize("schema", [None, [], "x", {}, {"type": "string"}, {"properties": 3, "required": "all"}])
def test_the_root_is_always_an_object(schema: Any) -> None:
    plain = plain_schema(schema)
    assert (plain["type"], plain["properties"]) == ("object", {})
    assert "required" not in plain


def test_a_schema_that_grows_without_bound_is_cut() -> None:
    definitions = {f"D{number}": {"anyOf": [{"$ref": f"#/$defs/D{number + 1}"}] * 10} for number in range(30)}
    plain = plain_schema({"type": "object", "properties": {"a": {"$ref": "#/$defs/D0"}}, "$defs": definitions})
    assert repr(plain).count("{") <= MAX_SCHEMA_NODES * 11


# --- results ---


def test_a_result_is_its_text_its_images_and_notes_of_the_rest() -> None:
    output = tool_output(
        {
            "content": [
                {"type": "text", "text": "one"},
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
                {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
                {"type": "resource", "resource": {"uri": "file:///b", "blob": "aGk="}},
                {"type": "resource_link", "name": "c", "uri": "file:///c"},
            ]
        }
    )
    assert output.content.splitlines() == [
        "one",
        "[content of type audio was left out]",
        "inside",
        "[binary resource file:///b was left out]",
        "[resource c: file:///c]",
    ]
    assert [image.mime_type for image in output.images] == ["image/png"]


def test_structured_content_is_the_text_when_there_is_no_other() -> None:
    assert tool_output({"content": [], "structuredContent": {"a": "ü"}}).content == '{"a": "ü"}'
    assert tool_output({"content": [{"type": "text", "text": "t"}], "structuredContent": {"a": 1}}).content == "t"


def test_a_failure_without_words_gets_some() -> None:
    output = tool_output({"content": [], "isError": True})
    assert (output.is_error, output.status, output.content) == (True, "error", "the tool failed without a message")


# --- descriptions of servers ---


def test_servers_are_read_from_the_configuration() -> None:
    servers = configured_servers(
        {
            "files": {
                "command": "files-server",
                "args": ["--root", 1],
                "env": {"A": 1},
                "timeout": 5,
                "tools": {"include": ["read"]},
                "supports_parallel_tool_calls": True,
            },
            "web": {"url": "https://x.example/mcp?key=1", "headers": {"Authorization": "Bearer t"}, "enabled": "no"},
            "old": {"url": "http://x.example/sse", "type": "sse"},
        }
    )
    files, web, old = servers
    assert files == McpServerConfig(
        "files", "stdio", "files-server", ("--root", "1"), {"A": "1"}, timeout=5.0, include=("read",), parallel=True
    )
    assert (web.transport, web.enabled, web.summary()["url"]) == ("http", False, "https://x.example/mcp")
    assert "Bearer" not in repr(web)
    assert old.transport == "sse"


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        ({}, "needs either `command` or `url`"),
        ({"command": "c", "url": "http://x"}, "needs either `command` or `url`"),
        ({"url": "ftp://x"}, "`url` must begin with http:// or https://"),
        ({"command": "c", "timeout": 0}, "`timeout` must be a number of seconds above 0"),
        ({"command": "c", "args": "a b"}, "`args` must be a list"),
        ({"command": "c", "type": "http"}, "`type: http` does not fit; known are stdio, http and sse"),
        ("text", "must be a mapping with `command` or `url`"),
    ],
)
def test_a_description_that_cannot_work_is_a_server_with_a_problem(raw: Any, problem: str) -> None:
    (server,) = configured_servers({"x": raw})
    assert server.problem == problem


def test_servers_are_read_from_an_editor() -> None:
    stdio, http = client_servers(
        [
            {"name": "a", "command": "/bin/a", "args": ["x"], "env": [{"name": "K", "value": "v"}]},
            {"type": "http", "name": "b", "url": "http://localhost:1", "headers": [{"name": "H", "value": "v"}]},
        ]
    )
    assert (stdio.transport, stdio.command, stdio.args, stdio.env) == ("stdio", "/bin/a", ("x",), {"K": "v"})
    assert (http.transport, http.url, http.headers) == ("http", "http://localhost:1", {"H": "v"})


def test_what_an_editor_sends_without_a_shape_is_a_server_with_a_problem_or_nothing() -> None:
    items: list[Any] = [{}, "a", {"name": "b"}, {"name": "c", "command": "c", "env": ["K=v"]}]
    assert [(server.name, server.problem) for server in client_servers(items)] == [
        ("b", "needs either `command` or `url`"),
        ("c", "`env` must be a mapping"),
    ]


def test_a_server_inherits_little_and_its_own_variables_win() -> None:
    base = {"PATH": "/bin", "HOME": "/h", "LC_ALL": "C", "MY_TOKEN": "t", "LANG": "de"}
    assert server_environment(base, {"LANG": "C", "K": "v"}) == {
        "PATH": "/bin",
        "HOME": "/h",
        "LC_ALL": "C",
        "LANG": "C",
        "K": "v",
    }


def test_the_revision_changes_with_the_setting_and_not_with_its_order() -> None:
    one = {"a": {"command": "c", "env": {"x": "1", "y": "2"}}}
    same = {"a": {"env": {"y": "2", "x": "1"}, "command": "c"}}
    assert revision(one) == revision(same) != revision({"a": {"command": "d"}})
