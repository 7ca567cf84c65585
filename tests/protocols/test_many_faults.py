"""A request with a great many faults is refused without a look at each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from hermes.protocols.error_table import MOST_FAULTS, acp_params_error, gateway_params_error


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid")


def refused(count: int) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Params.model_validate({f"key{number}": 0 for number in range(count)})
    return caught.value


@pytest.mark.parametrize("told", [gateway_params_error, acp_params_error])
def test_very_many_faults_are_counted_and_few_are_named(told: Callable[[ValidationError, str], Any]) -> None:
    many, few = told(refused(MOST_FAULTS + 1), "a.method"), told(refused(2), "a.method")
    assert (many.code, many.message) == (-32602, f"a.method: {MOST_FAULTS + 1} parameters are wrong")
    assert "key0" in few.message
