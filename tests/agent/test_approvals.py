"""The two-sided table of commands: what must ask, what must not, what is never run; and the order of decisions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hermes.agent.approvals import Allow, ApprovalPolicy, Ask, Block, approval_mode, choice_of, decide, read_verdict
from hermes.agent.command_patterns import INVISIBLE_KEY, RULES, SCRIPT_KEY
from hermes.agent.command_targets import Scene
from hermes.agent.command_views import views_of
from hermes.agent.shell_words import read_pipelines
from tests.agent import command_table
from tests.agent.command_detours import DETOUR_ASKS, DETOUR_BLOCKED, DETOUR_HARMLESS

ASKS = (*command_table.ASKS, *DETOUR_ASKS)
BLOCKED = (*command_table.BLOCKED, *DETOUR_BLOCKED)
HARMLESS = (*command_table.HARMLESS, *DETOUR_HARMLESS)

SCENE = Scene(
    cwd="/home/ada/project", user_home="/home/ada", agent_home="/home/ada/.hermes", own_pids=frozenset({4242})
)
POLICY = ApprovalPolicy(scene=SCENE)


@pytest.mark.parametrize("command", BLOCKED)
def test_command_is_never_run_in_any_mode(command: str) -> None:
    for policy in (POLICY, ApprovalPolicy(mode="off", scene=SCENE), ApprovalPolicy(yolo=True, scene=SCENE)):
        decision = decide(command, policy)
        assert isinstance(decision, Block), command
        assert decision.kind == "hard"


@pytest.mark.parametrize(("key", "command"), ASKS)
def test_dangerous_command_asks_under_its_stable_key(key: str, command: str) -> None:
    decision = decide(command, POLICY)
    assert isinstance(decision, Ask), f"{command!r} gave {decision}"
    assert key in decision.pattern_keys


@pytest.mark.parametrize("command", HARMLESS)
def test_harmless_command_does_not_ask(command: str) -> None:
    decision = decide(command, POLICY)
    assert decision == Allow(), f"{command!r} gave {decision}"


def test_table_has_enough_rows_on_each_side_and_covers_every_pattern() -> None:
    assert len(ASKS) + len(HARMLESS) + len(BLOCKED) >= 250
    assert min(len(ASKS), len(HARMLESS)) >= 100
    assert {key for key, _ in RULES} | {INVISIBLE_KEY, SCRIPT_KEY} <= {key for key, _ in ASKS}


def test_user_deny_rule_blocks_even_with_yolo() -> None:
    policy = ApprovalPolicy(yolo=True, deny=("npm publish*",), scene=SCENE)
    assert decide("cd pkg && npm publish --tag next", policy) == Block(
        "the user's configuration denies commands like 'npm publish*'", "deny_rule"
    )


def test_sudo_with_stdin_is_blocked_unless_a_password_is_known() -> None:
    blocked = decide("echo guess | sudo -S ls", POLICY)
    assert isinstance(blocked, Block)
    assert blocked.kind == "sudo"
    asked = decide("sudo -S ls", ApprovalPolicy(sudo_password_known=True, scene=SCENE))
    assert isinstance(asked, Ask)


def test_mode_off_and_yolo_run_what_would_ask() -> None:
    for policy in (ApprovalPolicy(mode="off", scene=SCENE), ApprovalPolicy(yolo=True, scene=SCENE)):
        assert decide("rm -rf build", policy) == Allow("yolo", ("recursive delete",))


def test_grant_must_cover_every_pattern_of_the_command() -> None:
    command = "rm -rf build && git reset --hard"
    assert isinstance(decide(command, POLICY, frozenset({"recursive delete"})), Ask)
    both = frozenset({"recursive delete", "git hard reset"})
    assert decide(command, POLICY, both) == Allow("granted", ("recursive delete", "git hard reset"))


def test_permanent_grant_and_session_grant_add_up() -> None:
    policy = ApprovalPolicy(permanent=frozenset({"git hard reset"}), scene=SCENE)
    decision = decide("rm -rf build && git reset --hard", policy, frozenset({"recursive delete"}))
    assert isinstance(decision, Allow)


def test_nobody_to_ask_means_no_unless_the_policy_says_approve() -> None:
    denied = decide("rm -rf build", ApprovalPolicy(unattended=True, scene=SCENE))
    assert isinstance(denied, Block)
    assert denied.kind == "unattended"
    policy = ApprovalPolicy(unattended=True, unattended_mode="approve", scene=SCENE)
    assert decide("rm -rf build", policy) == Allow("unattended", ("recursive delete",))


def test_smart_mode_is_announced_and_a_reviewers_denial_can_be_overridden_only_once() -> None:
    decision = decide("rm -rf build", ApprovalPolicy(mode="smart", scene=SCENE))
    assert isinstance(decision, Ask)
    assert decision.smart
    assert decision.choices() == ("once", "session", "always", "deny")
    assert decision.choices(smart_denied=True) == ("once", "deny")


def test_obfuscated_command_can_not_be_allowed_for_good() -> None:
    decision = decide("echo aGk= | base64 -d | sh", POLICY)
    assert isinstance(decision, Ask)
    assert decision.choices() == ("once", "session", "deny")


@pytest.mark.parametrize("answer", [{}, {"choice": None}, {"choice": "yes"}, {"choice": "ONCE"}, {"choice": ["once"]}])
def test_unknown_answer_means_deny(answer: dict[str, object]) -> None:
    assert choice_of(answer, ("once", "session", "always", "deny")) == "deny"


def test_choice_that_was_not_offered_means_deny() -> None:
    assert choice_of({"choice": "always"}, ("once", "deny")) == "deny"
    assert choice_of({"choice": "once"}, ("once", "deny")) == "once"


def test_mode_words_of_the_settings_are_read_safely() -> None:
    assert [approval_mode(word) for word in (False, "off", "smart", "manual", "bogus", None)] == [
        "off",
        "off",
        "smart",
        "manual",
        "manual",
        "manual",
    ]


def test_only_the_exact_word_of_the_reviewer_counts() -> None:
    assert [read_verdict(text) for text in ("APPROVE", " deny.\n", "I would APPROVE", "", "ESCALATE")] == [
        "approve",
        "deny",
        "escalate",
        "escalate",
        "escalate",
    ]


def test_reader_survives_text_that_no_shell_would_accept() -> None:
    for text in (
        "'",
        '"',
        "$(",
        "`",
        "${",
        "<<",
        "a <<EOF",
        "a | | b",
        ")(",
        "\\",
        "$'\\",
        "((",
        "&&&&",
        "{a,",
        ">",
        "x >",
    ):
        read_pipelines(text)
        views_of(text)


@pytest.mark.parametrize("count", [100, 500, 900, 5000, 15_000])
@pytest.mark.parametrize("harmless", ["true;", "true\n", "ls|", "echo $(true)&&", "nohup ", "eval ", "find . -exec "])
@pytest.mark.parametrize("yolo", [False, True])
def test_a_command_is_seen_or_the_text_does_not_run_however_much_stands_before_it(
    harmless: str, count: int, yolo: bool
) -> None:
    decision = decide(harmless * count + "rm -rf /", replace(POLICY, yolo=yolo))
    assert isinstance(decision, Block), decision


def test_a_command_with_very_many_words_or_parts_is_no_reason_to_refuse_it() -> None:
    assert isinstance(decide("echo " + "a " * 15_000, POLICY), Allow)
    assert isinstance(decide("echo a;" * 900, POLICY), Allow)
    assert isinstance(decide("sudo env A=1 nohup nice -n 5 timeout 5 bash -c 'ls -l'", POLICY), Allow)


def test_deeply_nested_text_is_bounded() -> None:
    decide("$(" * 500 + "ls" + ")" * 500, POLICY)
    decide("; ".join(["eval eval eval ls"] * 500), POLICY)


def test_text_that_doubles_itself_is_refused_unread_and_takes_no_memory() -> None:
    doubled = "a=xxxx\n" + "a=$a$a\n" * 60 + "echo $a"
    here_documents = "cat <<A " * 5000
    looped = "for a in x y; do\n" + "for a in $a $a; do\n" * 60 + "rm $a"
    for command in (doubled, here_documents, looped):
        decision = decide(command, POLICY)
        assert isinstance(decision, Block)
        assert decision.kind == "hard"
