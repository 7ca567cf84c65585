"""A question to a model outside every conversation, stopped after each of its steps: nothing of it is left."""

from __future__ import annotations

import pytest

from hermes.errors import ProviderError
from hermes.nurseries.one_shot import ANSWER_WITHIN, ask_once
from hermes.testing import InScope, SweepRun, cancel_at_every_step
from tests.support.core import Reply, ScriptedModel, hang, make_services, say


@pytest.mark.parametrize("answers", [True, False], ids=["answered", "never answered"])
def test_a_stop_of_a_single_question_leaves_no_open_model(answers: bool) -> None:
    models: list[ScriptedModel] = []

    async def ask() -> str:
        reply: Reply = say("a", "b", pause=1) if answers else hang()
        services, model = make_services(reply)
        models.append(model)
        try:
            return await ask_once(services, None, "be short", "what is it?")
        except ProviderError as error:
            return error.message

    def check(run: SweepRun[InScope[str], str | None]) -> None:
        assert models[-1].open == 0
        if not run.step:
            assert run.result == ("ab" if answers else f"the model gave no answer within {ANSWER_WITHIN:g} s")

    assert cancel_at_every_step(lambda: InScope(ask), check=check, seeds=(0, 1)).runs > 4
