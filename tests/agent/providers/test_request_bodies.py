"""Request bodies of the three formats: strict shapes, replays, cache markers, byte stability."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pytest

from hermes.agent.providers.http_provider import FORMATS
from hermes.agent.providers.wire_format import dump_body
from hermes.messages import ImagePart, Row, TextPart, ToolCall
from tests.support.provider_parsing import TERMINAL, endpoint, request

PNG = ImagePart("image/png", data="iVBO")
CALL = ToolCall("call_1", "terminal", '{"b": 1, "a": "x"}', call_id="call_1", response_item_id="fc_1")
TURN = (
    Row("user", "list the files"),
    Row("assistant", "Looking.", tool_calls=(CALL,)),
    Row("tool", "a.txt", tool_call_id="call_1", tool_name="terminal"),
)
NEXT = (Row("assistant", "There is a.txt."), Row("user", "thanks"))


def body(
    mode: str, *rows: Row, without: frozenset[str] = frozenset(), at: dict[str, Any] | None = None, **more: Any
) -> Any:
    place = endpoint(mode, **(at or {}))
    return orjson.loads(dump_body(FORMATS[mode].body(request(*rows, **more), place, without)))


def test_a_chat_request_has_exactly_this_shape() -> None:
    assert body("chat_completions", *TURN, system=("stable", "rest"), tools=(TERMINAL,), max_output_tokens=99) == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 99,
        "tools": [
            {
                "type": "function",
                "function": {"name": "terminal", "description": "Run a command.", "parameters": TERMINAL.parameters},
            }
        ],
        "messages": [
            {"role": "system", "content": "stable\n\nrest"},
            {"role": "user", "content": "list the files"},
            {
                "role": "assistant",
                "content": "Looking.",
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "terminal", "arguments": '{"a":"x","b":1}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "a.txt"},
        ],
    }


def test_a_messages_request_has_exactly_this_shape() -> None:
    marker = {"type": "ephemeral"}
    sent = body(
        "anthropic_messages", *TURN, system=("stable", "mid", "rest"), tools=(TERMINAL,), model="claude-haiku-4-5"
    )
    assert sent == {
        "model": "claude-haiku-4-5",
        "max_tokens": 64_000,
        "stream": True,
        "tools": [{"name": "terminal", "description": "Run a command.", "input_schema": TERMINAL.parameters}],
        "system": [
            {"type": "text", "text": "stable", "cache_control": marker},
            {"type": "text", "text": "mid\n\nrest", "cache_control": marker},
        ],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "list the files"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Looking."},
                    {
                        "type": "tool_use",
                        "id": "call_1",
                        "name": "terminal",
                        "input": {"a": "x", "b": 1},
                        "cache_control": marker,
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": "a.txt", "cache_control": marker}
                ],
            },
        ],
    }


def test_a_responses_request_has_exactly_this_shape() -> None:
    sent = body(
        "codex_responses", *TURN, system=("stable", "rest"), tools=(TERMINAL,), model="gpt-5.2", max_output_tokens=9
    )
    assert re.fullmatch(r"[0-9a-f]{32}", sent.pop("prompt_cache_key"))
    assert sent == {
        "model": "gpt-5.2",
        "store": False,
        "stream": True,
        "reasoning": {"summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 9,
        "parallel_tool_calls": True,
        "instructions": "stable\n\nrest",
        "tools": [
            {
                "type": "function",
                "name": "terminal",
                "description": "Run a command.",
                "parameters": TERMINAL.parameters,
                "strict": False,
            }
        ],
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "list the files"}]},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]},
            {"type": "function_call", "call_id": "call_1", "name": "terminal", "arguments": '{"a":"x","b":1}'},
            {"type": "function_call_output", "call_id": "call_1", "output": "a.txt"},
        ],
    }


@pytest.mark.parametrize("mode", ["chat_completions", "codex_responses"])
def test_a_request_is_a_byte_prefix_of_the_next_one(mode: str) -> None:
    place, wire = endpoint(mode), FORMATS[mode]
    options: dict[str, Any] = {"system": ("stable", "rest"), "tools": (TERMINAL,)}
    first = dump_body(wire.body(request(*TURN, **options), place, frozenset()))
    second = dump_body(wire.body(request(*TURN, *NEXT, **options), place, frozenset()))
    assert second.startswith(first.removesuffix(b"]}"))


def test_a_messages_request_is_a_prefix_but_for_the_moving_markers() -> None:
    place, wire = endpoint("anthropic_messages"), FORMATS["anthropic_messages"]
    options: dict[str, Any] = {"system": ("stable", "rest"), "tools": (TERMINAL,)}
    marker = re.compile(rb',"cache_control":\{[^}]*\}')
    first, second = (
        marker.sub(b"", dump_body(wire.body(request(*rows, **options), place, frozenset())))
        for rows in (TURN, (*TURN, *NEXT))
    )
    assert second.startswith(first.removesuffix(b"]}"))


def test_markers_never_pass_four_and_carry_the_long_lifetime_if_asked() -> None:
    data = orjson.dumps(body("anthropic_messages", *TURN, *NEXT, system=("a", "b"), at={"cache_ttl": "1h"}))
    assert data.count(b'"cache_control":{"type":"ephemeral","ttl":"1h"}') == data.count(b"cache_control") == 4


def test_an_undivided_system_prompt_leaves_three_markers_for_messages() -> None:
    sent = body("anthropic_messages", *TURN, *NEXT, system=("only",))
    marked = [any("cache_control" in block for block in message["content"]) for message in sent["messages"]]
    assert (len(sent["system"]), marked) == (1, [False, False, True, True, True])


def test_a_claude_model_behind_a_router_gets_the_same_markers() -> None:
    at = {"routed": True, "base_url": "https://openrouter.ai/api/v1"}
    sent = body("chat_completions", *TURN, system=("a", "b"), model="anthropic/claude-sonnet-4.6", at=at)
    marked = [[("cache_control" in part) for part in message["content"]] for message in sent["messages"]]
    assert marked == [[True, True], [False], [True], [True]]
    assert "cache_control" not in orjson.dumps(body("chat_completions", *TURN, model="openai/gpt-5.2", at=at)).decode()


# --- reasoning


def budget(tokens: int) -> dict[str, Any]:
    return {"thinking": {"type": "enabled", "budget_tokens": tokens}}


@pytest.mark.parametrize(
    ("mode", "model", "effort", "at", "expected"),
    [
        ("chat_completions", "gpt-5.2", None, {}, {}),
        ("chat_completions", "gpt-5.2", "high", {}, {"reasoning_effort": "high"}),
        ("chat_completions", "gpt-5.2", "none", {}, {"reasoning_effort": "none"}),
        ("chat_completions", "gpt-5", "none", {}, {"reasoning_effort": "minimal"}),
        ("chat_completions", "gpt-5", "ultra", {}, {"reasoning_effort": "high"}),
        ("chat_completions", "o3", "minimal", {}, {"reasoning_effort": "low"}),
        ("chat_completions", "gpt-4o", "high", {}, {}),
        ("chat_completions", "never-heard-of", "xhigh", {}, {"reasoning_effort": "xhigh"}),
        ("chat_completions", "openai/gpt-5.2", "high", {"routed": True}, {"reasoning": {"effort": "high"}}),
        ("chat_completions", "openai/gpt-5.2", "none", {"routed": True}, {"reasoning": {"enabled": False}}),
        ("chat_completions", "glm-4.6", "none", {"thinking_switch": True}, {"thinking": {"type": "disabled"}}),
        ("chat_completions", "glm-4.6", "medium", {"thinking_switch": True}, {"thinking": {"type": "enabled"}}),
        ("anthropic_messages", "claude-sonnet-4-6", None, {}, {}),
        ("anthropic_messages", "claude-sonnet-4-6", "none", {}, {}),
        (
            "anthropic_messages",
            "claude-sonnet-4-6",
            "medium",
            {},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}},
        ),
        ("anthropic_messages", "claude-haiku-4-5", "low", {}, budget(4000)),
        ("anthropic_messages", "claude-haiku-4-5", "medium", {}, budget(8000)),
        ("anthropic_messages", "claude-haiku-4-5", "high", {}, budget(16000)),
        ("anthropic_messages", "claude-haiku-4-5", "max", {}, budget(32000)),
        ("anthropic_messages", "claude-3-5-haiku", "high", {}, {}),
        ("codex_responses", "gpt-5.2", "high", {}, {"reasoning": {"effort": "high", "summary": "auto"}}),
        ("codex_responses", "gpt-4o", "high", {}, {}),
    ],
)  # fmt: skip
def test_an_effort_becomes_what_the_model_understands(
    mode: str, model: str, effort: str | None, at: dict[str, Any], expected: dict[str, Any]
) -> None:
    sent = body(mode, Row("user", "x"), model=model, reasoning_effort=effort, at=at)
    names = ("reasoning_effort", "reasoning", "thinking", "output_config")
    assert {name: sent[name] for name in names if name in sent} == expected


def test_a_thinking_budget_leaves_room_for_the_answer_and_drops_the_temperature() -> None:
    sent = body(
        "anthropic_messages",
        Row("user", "x"),
        model="claude-opus-4-1",
        reasoning_effort="high",
        temperature=0.2,
        max_output_tokens=100,
    )
    assert (sent["max_tokens"], "temperature" in sent) == (16_000 + 4_096, False)


# --- replays


SIGNED = [{"type": "thinking", "thinking": "hm", "signature": "S"}]
THOUGHT = Row(
    "assistant",
    None,
    tool_calls=(CALL,),
    reasoning_details=SIGNED,
    replay_items=[{"issuer": "api.example.com", "items": SIGNED}],
)


def test_signed_thinking_is_replayed_in_the_open_tool_cycle_only() -> None:
    opened = body("anthropic_messages", TURN[0], THOUGHT, TURN[2])
    assert opened["messages"][1]["content"][0] == SIGNED[0]
    closed = body("anthropic_messages", TURN[0], THOUGHT, TURN[2], *NEXT)
    assert "thinking" not in [block["type"] for message in closed["messages"] for block in message["content"]]


def test_a_steer_does_not_close_the_cycle() -> None:
    sent = body("anthropic_messages", TURN[0], THOUGHT, TURN[2], Row("user", "faster", display_kind="steer"))
    assert sent["messages"][1]["content"][0] == SIGNED[0]
    assert [block["type"] for block in sent["messages"][2]["content"]] == ["tool_result", "text"]


def test_signed_thinking_goes_to_its_issuer_only() -> None:
    sent = body("anthropic_messages", TURN[0], THOUGHT, TURN[2], at={"base_url": "https://other.example"})
    assert [block["type"] for block in sent["messages"][1]["content"]] == ["tool_use"]


def test_a_cycle_that_began_without_thinking_goes_on_without_it() -> None:
    sent = body("anthropic_messages", *TURN, model="claude-haiku-4-5", reasoning_effort="high")
    assert "thinking" not in sent
    thought = body("anthropic_messages", TURN[0], THOUGHT, TURN[2], model="claude-haiku-4-5", reasoning_effort="high")
    assert thought["thinking"]["type"] == "enabled"


ENCRYPTED = [{"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "g"}]


def test_encrypted_reasoning_is_replayed_with_the_item_ids_it_belongs_to() -> None:
    row = Row("assistant", None, tool_calls=(CALL,), replay_items=[{"issuer": "api.example.com", "items": ENCRYPTED}])
    sent = body("codex_responses", TURN[0], row, TURN[2])["input"]
    assert sent[1] == ENCRYPTED[0]
    assert sent[2]["id"] == "fc_1"
    elsewhere = body("codex_responses", TURN[0], row, TURN[2], at={"base_url": "https://other.example/v1"})["input"]
    assert [part.get("type") for part in elsewhere] == [None, "function_call", "function_call_output"]
    assert "id" not in elsewhere[1]


def test_routed_reasoning_details_are_replayed_to_the_same_vendor_only() -> None:
    details = [{"type": "reasoning.text", "text": "hm", "signature": "S"}]
    issuer = "openrouter.ai/anthropic"
    row = Row("assistant", "x", reasoning_details=details, replay_items=[{"issuer": issuer, "items": details}])
    at = {"routed": True, "base_url": "https://openrouter.ai/api/v1"}
    same = body("chat_completions", TURN[0], row, model="anthropic/claude-x", at=at)
    other = body("chat_completions", TURN[0], row, model="openai/gpt-x", at=at)
    assert same["messages"][1]["reasoning_details"] == details
    assert "reasoning_details" not in other["messages"][1]


def test_reasoning_content_is_echoed_with_calls_where_it_is_demanded() -> None:
    row = Row("assistant", None, tool_calls=(CALL,), reasoning_content="hm")
    at = {"echo_reasoning": True}
    assert body("chat_completions", TURN[0], row, TURN[2], at=at)["messages"][1]["reasoning_content"] == "hm"
    assert "reasoning_content" not in body("chat_completions", TURN[0], row, TURN[2])["messages"][1]


# --- oddities


def test_images_take_the_form_of_each_format() -> None:
    row = Row("user", (TextPart("what is it"), PNG, ImagePart("image/png", url="https://x.example/a.png")))
    chat = body("chat_completions", row)["messages"][0]["content"]
    assert [part["image_url"]["url"] for part in chat[1:]] == ["data:image/png;base64,iVBO", "https://x.example/a.png"]
    claude = body("anthropic_messages", row)["messages"][0]["content"]
    assert [part["source"]["type"] for part in claude[1:]] == ["base64", "url"]
    responses = body("codex_responses", row)["input"][0]["content"]
    assert [part["type"] for part in responses] == ["input_text", "input_image", "input_image"]


def test_images_of_tool_results_follow_in_a_user_message_of_a_chat() -> None:
    result = Row("tool", (TextPart("shot"), PNG), tool_call_id="call_1")
    roles = [
        (m["role"], isinstance(m["content"], str)) for m in body("chat_completions", *TURN[:2], result)["messages"]
    ]
    assert roles == [("user", True), ("assistant", True), ("tool", True), ("user", False)]
    claude = body("anthropic_messages", *TURN[:2], result)["messages"][2]["content"][0]["content"]
    assert [part["type"] for part in claude] == ["text", "image"]


def test_an_assistant_row_with_calls_only_has_null_content() -> None:
    row = Row("assistant", None, tool_calls=(CALL,))
    assert body("chat_completions", TURN[0], row, TURN[2])["messages"][1]["content"] is None


def test_unreadable_arguments_are_sent_as_an_empty_object() -> None:
    row = Row("assistant", None, tool_calls=(ToolCall("c", "f", '{"a": '),))
    assert body("chat_completions", row)["messages"][0]["tool_calls"][0]["function"]["arguments"] == "{}"
    assert body("anthropic_messages", TURN[0], row)["messages"][1]["content"][0]["input"] == {}


def test_messages_alternate_begin_with_the_user_and_hold_no_orphans_or_empty_texts() -> None:
    rows = (
        Row("assistant", "hello"),
        Row("user", "a"),
        Row("user", " "),
        Row("user", "b"),
        Row("tool", "lost", tool_call_id="nobody"),
        Row("assistant", "  "),
    )
    sent = body("anthropic_messages", *rows)["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "user"]
    assert [block["text"] for block in sent[2]["content"]] == ["a", "b"]


def test_call_ids_are_made_fit_for_each_format() -> None:
    odd = ToolCall("functions.terminal:0", "terminal", "{}")
    rows = (TURN[0], Row("assistant", None, tool_calls=(odd,)), Row("tool", "x", tool_call_id=odd.id))
    claude = body("anthropic_messages", *rows)["messages"]
    assert claude[1]["content"][0]["id"] == claude[2]["content"][0]["tool_use_id"] == "functions_terminal_0"
    long = ToolCall("x" * 90, "terminal", "{}")
    rows = (TURN[0], Row("assistant", None, tool_calls=(long,)), Row("tool", "x", tool_call_id=long.id))
    sent = body("codex_responses", *rows)["input"]
    assert sent[1]["call_id"] == sent[2]["call_id"]
    assert len(sent[1]["call_id"]) <= 64


def test_the_text_for_the_model_wins_over_the_text_for_people() -> None:
    row = Row("user", "/skill", api_content="the whole skill")
    assert body("chat_completions", row)["messages"][0]["content"] == "the whole skill"


def test_refused_fields_are_left_out_and_the_other_limit_is_used() -> None:
    sent = body("chat_completions", TURN[0], max_output_tokens=5, without=frozenset({"stream_options", "max_tokens"}))
    assert (sent.get("stream_options"), sent.get("max_tokens"), sent["max_completion_tokens"]) == (None, None, 5)


def test_extra_fields_of_the_endpoint_and_the_request_are_merged() -> None:
    sent = body("chat_completions", TURN[0], at={"extra_body": {"a": 1, "b": 1}}, extra_body={"b": 2})
    assert (sent["a"], sent["b"]) == (1, 2)


def test_what_json_cannot_hold_is_replaced() -> None:
    sent = body("chat_completions", Row("user", "bad \ud800 text"))
    assert sent["messages"][0]["content"] == "bad ? text"


def test_keys_go_into_the_header_of_their_format() -> None:
    asked = request(TURN[0])

    def headers(mode: str, **more: Any) -> dict[str, str]:
        return dict(FORMATS[mode].headers(asked, endpoint(mode, **more)))

    assert headers("chat_completions") == {"Authorization": "Bearer k"}
    assert headers("codex_responses") == {"Authorization": "Bearer k"}
    assert headers("anthropic_messages") == {"anthropic-version": "2023-06-01", "x-api-key": "k"}
    assert headers("anthropic_messages", api_key="sk-ant-oat01-x")["Authorization"] == "Bearer sk-ant-oat01-x"


@pytest.mark.parametrize(
    ("mode", "base", "expected"),
    [
        ("chat_completions", "https://a.example/v1/", "https://a.example/v1/chat/completions"),
        ("chat_completions", "https://a.example/v1/chat/completions", "https://a.example/v1/chat/completions"),
        ("anthropic_messages", "https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("anthropic_messages", "https://api.minimax.io/anthropic", "https://api.minimax.io/anthropic/v1/messages"),
        ("anthropic_messages", "http://127.0.0.1:1/v1", "http://127.0.0.1:1/v1/messages"),
        ("codex_responses", "https://api.openai.com/v1", "https://api.openai.com/v1/responses"),
    ],
)
def test_the_address_follows_from_the_base_url(mode: str, base: str, expected: str) -> None:
    assert FORMATS[mode].url(endpoint(mode, base_url=base)) == expected
