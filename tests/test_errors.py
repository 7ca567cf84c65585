"""Domain errors: one hierarchy, a sentence for people each, typed data where a machine should act."""

from __future__ import annotations

import pytest

from hermes import errors
from hermes.errors import HermesError, ModelNotServed, ProviderError, SessionOwnedElsewhere, StoreUnavailable

SIMPLE = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, HermesError)
    and "__init__" not in vars(kind)
    and not issubclass(kind, StoreUnavailable | ProviderError)
]


@pytest.mark.parametrize("kind", SIMPLE, ids=lambda kind: kind.__name__)
def test_an_error_has_a_sentence_of_its_own_and_takes_another(kind: type[HermesError]) -> None:
    plain = kind()
    assert plain.message and str(plain) == plain.message and plain.data is None
    told = kind("say this", data={"key": 1})
    assert (told.message, str(told), told.data) == ("say this", "say this", {"key": 1})


def test_no_error_is_of_two_families() -> None:
    families = (
        errors.InvalidRequest,
        errors.NotFound,
        errors.Conflict,
        errors.Unauthorized,
        errors.Forbidden,
        errors.Unsupported,
        errors.Unavailable,
        errors.CommandFailed,
        errors.ProviderError,
    )
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, HermesError) and kind is not HermesError:
            assert sum(issubclass(kind, family) for family in families) <= 1, kind


def test_a_model_that_is_not_served_comes_with_suggestions_for_people_and_machines() -> None:
    error = ModelNotServed("gpt-x", "openai", ("gpt-4", "gpt-5"))
    assert error.message == "gpt-x is not a model of provider openai; try gpt-4, gpt-5"
    assert error.data == {"model": "gpt-x", "provider": "openai", "suggestions": ["gpt-4", "gpt-5"]}
    assert ModelNotServed("gpt-x", "openai").message == "gpt-x is not a model of provider openai"


def test_a_session_of_another_process_names_its_owner() -> None:
    error = SessionOwnedElsewhere("pid 7 on here", expires_at=12.5)
    assert error.data == {"reason": "lease_held", "owner": "pid 7 on here", "expires_at": 12.5}
    assert "pid 7 on here" in error.message


def test_a_refusing_store_says_why() -> None:
    error = StoreUnavailable("the disk is full", cause="full")
    assert (error.cause, error.data) == ("full", {"cause": "full"})


def test_an_unknown_parameter_is_named() -> None:
    error = errors.UnknownParameter("colour")
    assert (error.message, error.data) == ("unknown parameter: colour", {"key": "colour"})


def test_a_provider_error_carries_what_the_retry_needs() -> None:
    error = ProviderError("slow down", error_class="rate_limit", status=429, retry_after=7.0, details={"a": 1})
    assert (error.error_class, error.status, error.retry_after, error.details) == ("rate_limit", 429, 7.0, {"a": 1})
    assert (error.resets_at, error.provider, error.model, error.reached_provider) == (None, "", "", True)
