"""The script format as data: parsing, picking a reply, expanding it to typed steps."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.testing import Conversation, Reply, Script, ScriptCursor, ScriptError
from hermes.testing.conversation import conversation_of
from hermes.testing.script import (
    Delay,
    Finish,
    ReasoningChunk,
    RedactedReasoning,
    RefusalChunk,
    TextChunk,
    ToolCall,
    Usage,
    WaitFor,
)
from hermes.testing.wire_frames import WireFormat

YAML_SCRIPT = """
strict: true
replies:
  - when: {last_user_contains: weather}
    steps:
      - reasoning: think hard
      - text: ["Let ", me see]
      - wait_for: gate
      - tool_call: {name: weather, arguments: {city: Zürich}, id: c1}
      - delay: 0.5
      - usage: {input_tokens: 3, output_tokens: 4}
  - steps: [{refusal: No.}]
    faults: {no_done: true}
"""


def test_yaml_and_json_give_the_same_script() -> None:
    script = Script.parse(YAML_SCRIPT)
    assert Script.parse(json.dumps(script.model_dump(by_alias=True, exclude_unset=True))) == script
    assert script.strict and script.replies[1].faults.no_done


def test_a_reply_expands_to_typed_steps() -> None:
    script = Script.parse(YAML_SCRIPT)
    assert list(script.replies[0].steps(Conversation(number=4))) == [
        ReasoningChunk("think"),
        ReasoningChunk(" hard", "signature-4"),
        TextChunk("Let "),
        TextChunk("me see"),
        WaitFor("gate"),
        ToolCall(0, "c1", "weather", ('{"city": "Zürich"}',)),
        Delay(0.5),
        Finish("tool_calls", Usage(3, 4)),
    ]
    assert list(script.replies[1].steps()) == [RefusalChunk("No."), Finish("content_filter", Usage(1, 1))]


def test_a_list_alone_is_a_script_and_nothing_is_the_echo() -> None:
    assert Script.parse("- steps: [{text: a}]") == Script.of(Reply.of({"text": "a"}))
    reply = ScriptCursor(Script.parse("")).next_reply(Conversation())
    assert reply is not None
    assert list(reply.steps(Conversation(last_user="say this")))[:2] == [TextChunk("say"), TextChunk(" this")]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("replies: [{steps: [{}]}]", "exactly one of"),
        ("replies: [{steps: [{text: a, delay: 1}]}]", "exactly one of"),
        ("replies: [{steps: [{txt: a}]}]", r"replies\.0\.steps\.0\.txt"),
        ("replies: [{faults: {status: 200}}]", r"faults\.status"),
        ("replies: [{faults: {hangs: true}}]", r"faults\.hangs"),
        ("a: [", "neither YAML nor JSON"),
        ("{", "neither YAML nor JSON"),
        ("text", "script"),
    ],
)
def test_a_bad_script_is_refused_with_the_place(text: str, complaint: str) -> None:
    with pytest.raises(ScriptError, match=complaint):
        Script.parse(text)


@given(st.text())
def test_the_pieces_of_a_text_join_to_the_text(text: str) -> None:
    steps = Reply.of({"text": text}).steps()
    assert "".join(step.text for step in steps if isinstance(step, TextChunk)) == text


@given(st.dictionaries(st.text(), st.text()), st.integers(1, 9))
def test_arguments_survive_being_split(arguments: dict[str, str], size: int) -> None:
    reply = Reply.of({"tool_call": {"name": "a", "arguments": arguments}}, faults={"split_arguments": size})
    call = next(reply.steps())
    assert isinstance(call, ToolCall)
    assert json.loads(call.arguments) == arguments
    assert max(map(len, call.argument_chunks)) <= size


def test_calls_are_numbered_and_named_by_request_and_place() -> None:
    reply = Reply.of({"tool_call": {"name": "a"}}, {"text": "x"}, {"tool_call": {"name": "b"}})
    calls = [step for step in reply.steps(Conversation(number=7)) if isinstance(step, ToolCall)]
    assert [(call.index, call.id, call.arguments) for call in calls] == [(0, "call_7_0", "{}"), (1, "call_7_1", "{}")]


def test_reasoning_can_be_redacted_or_lack_its_signature() -> None:
    reply = Reply.of({"reasoning": {"redacted": "x"}}, {"reasoning": {"text": "hm", "signature": ""}})
    assert list(reply.steps())[:2] == [RedactedReasoning("x"), ReasoningChunk("hm", "")]


def test_replies_with_a_rule_come_first_and_the_others_in_order() -> None:
    script = Script.parse(
        """
        - steps: [{text: one}]
        - {when: {tool_result_contains: "42"}, steps: [{text: found}]}
        - {when: {last_role: tool}, times: 1, steps: [{text: once}]}
        - {when: {model: other, last_user_contains: HELLO}, steps: [{text: hello}]}
        - steps: [{text: two}]
        """
    )
    cursor = ScriptCursor(script)

    def says(**seen: Any) -> str | None:
        reply = cursor.next_reply(Conversation(**seen))
        return None if reply is None else str(reply.step_specs[0].text)

    assert says() == "one"
    assert says(last_role="tool", tool_results="it is 42") == "found"
    assert says(last_role="tool", tool_results="nothing") == "once"
    assert says(model="other", last_user="Oh, hello") == "hello"
    assert says(last_role="tool", tool_results="nothing") == "two"
    assert says(last_user="hello") is None


@pytest.mark.parametrize(("policy", "expected"), [("error", None), ("repeat", "a"), ("echo", "")])
def test_a_used_up_script_does_as_it_was_told(policy: str, expected: str | None) -> None:
    script = Script.model_validate({"when_used_up": policy, "replies": [{"steps": [{"text": "a"}]}]})
    cursor = ScriptCursor(script)
    cursor.next_reply(Conversation())
    reply = cursor.next_reply(Conversation())
    spec = None if reply is None else reply.step_specs[0]
    assert (spec and (spec.text if spec.text is not None else spec.echo)) == expected


CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        (
            WireFormat.CHAT,
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "question"}]},
                    {"role": "assistant", "tool_calls": [CALL]},
                    {"role": "tool", "tool_call_id": "c", "content": "answer"},
                ]
            },
        ),
        (
            WireFormat.MESSAGES,
            {
                "messages": [
                    {"role": "user", "content": "question"},
                    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]},
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "answer"}]},
                ]
            },
        ),
        (
            WireFormat.RESPONSES,
            {
                "input": [
                    {"role": "user", "content": "question"},
                    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "c", "output": "answer"},
                ]
            },
        ),
    ],
)
def test_the_three_formats_show_the_rules_the_same_conversation(wire: WireFormat, body: dict[str, Any]) -> None:
    seen = conversation_of(wire, {"model": "m", **body}, 3)
    assert (seen.number, seen.model, seen.last_role) == (3, "m", "tool")
    assert (seen.last_user, seen.tool_results) == ("question", "answer")


@pytest.mark.parametrize("text", ["{replies: [{steps: [{text: a}]}]}", "[{steps: [{text: a}]}]"])
def test_yaml_in_braces_is_yaml(text: str) -> None:
    assert len(Script.parse(text).replies) == 1


@pytest.mark.parametrize("text", ["[" * 5000, f"times: {'9' * 5000}", "{ broken: ["])
def test_text_that_no_reader_bears_is_a_script_error(text: str) -> None:
    with pytest.raises(ScriptError, match="neither YAML nor JSON"):
        Script.parse(text)
