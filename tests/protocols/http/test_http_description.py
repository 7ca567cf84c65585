"""The description of the API says what the routes read and answer, and every row of it is true."""

from __future__ import annotations

import ast
import json
import subprocess
from pathlib import Path

import pytest

from hermes.protocols.http import openapi, parameters
from hermes.protocols.http.routes import ROUTES
from tests.support.server_process import COMMAND

HTTP = Path("hermes/protocols/http")
READ_ELSEWHERE = {"accept", "content-type", "user-agent", "if-none-match", "x-hermes-session-token"}
"""Headers that are read and are no parameters: what they do is described in words, or is of HTTP itself."""


def read_by_the_routes(where: str) -> set[str]:
    """Names that the handlers ask ``call.query`` or ``call.headers`` for, out of their source."""
    attribute = "query" if where == "query" else "headers"
    found: set[str] = set()
    for file in HTTP.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Attribute(attr=of), attr="get"),
                    args=[ast.Constant(value=str(name)), *_],
                ) if of == attribute:
                    found.add(name.lower())
                case ast.Call(func=ast.Attribute(attr="label"), args=[ast.Constant(value=str(name)), *_]) if (
                    where == "header"
                ):
                    found.add(name.lower())
                case _:
                    pass
    return found


@pytest.mark.parametrize("where", ["query", "header"])
def test_whatever_a_route_reads_beside_its_body_is_described(where: str) -> None:
    described = {one.name.lower() for row in parameters.PARAMETERS.values() for one in row if one.where == where}
    assert read_by_the_routes(where) - READ_ELSEWHERE - described == set()


def test_parameters_stand_at_routes_that_are_there() -> None:
    assert set(parameters.PARAMETERS) <= {(route.method, route.path) for route in ROUTES}


@pytest.mark.e2e
def test_the_command_prints_the_document() -> None:
    done = subprocess.run([COMMAND, "schema", "openapi"], capture_output=True, check=True, timeout=60)
    printed = json.loads(done.stdout)
    assert printed == json.loads(json.dumps(openapi.document()))
    assert printed["openapi"] == "3.1.0"


def test_every_operation_tells_its_refusals_and_its_answer() -> None:
    paths = openapi.document()["paths"]
    for route in ROUTES:
        operation = paths[route.path.replace("{name:path}", "{name}")][route.method.lower()]
        assert str(route.status) in operation["responses"] and "default" in operation["responses"]
        assert ("401" in operation["responses"]) is not route.public
        if route.body is not None:
            assert operation["requestBody"]["content"]["application/json"]["schema"]["$ref"].endswith(
                route.body.__name__
            )
