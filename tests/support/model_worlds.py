"""A gateway of models whose world a test sets: for the rows of the `/model` matrix, through any surface."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hermes.agent.model_catalog import check_served
from hermes.agent.model_switch import ModelWorld
from hermes.agent.ports import Provider, ResolvedModel
from hermes.nurseries.services import Services
from tests.support.core import OneModel, make_services


class ManyWorlds(OneModel):
    """A gateway of models in which the world is what the row says."""

    def __init__(self, provider: Provider) -> None:
        super().__init__(provider)
        self.now = ModelWorld("custom", "scripted-1")
        self.preferred = "custom"
        self.called: list[tuple[str, str]] = []
        """(provider, model) of the models that were about to be called."""

    async def resolve(self, model: str | None, provider: str | None) -> ResolvedModel:
        check_served(model, provider)
        return await super().resolve(model, provider)

    def provider_for(self, resolved: ResolvedModel) -> Provider:
        self.called.append((resolved.provider, resolved.model))
        return super().provider_for(resolved)

    def world(self, **given: Any) -> ModelWorld:
        return replace(self.now, has_default=True)

    async def options(self, **given: Any) -> dict[str, Any]:
        return {"model": "", "provider": "", "providers": []}

    def default_provider(self, model: str | None = None) -> str:
        return self.preferred


def worldly() -> tuple[Services, ManyWorlds]:
    services, model = make_services()
    models = ManyWorlds(model)
    return replace(services, models=models), models
