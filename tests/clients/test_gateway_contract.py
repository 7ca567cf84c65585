"""The gateway's contract in three machine-readable forms, held against outsiders: OpenRPC, JSON Schema, TypeScript."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from jsonschema import Draft7Validator, Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT7

from hermes.protocols.gateway.contract import json_schemas, openrpc
from hermes.protocols.gateway.contract_typescript import typescript
from hermes.protocols.gateway.server import BRIDGED_REQUESTS, SERVER_REQUESTS
from tests.support.http_clients import node_problem
from tests.support.server_process import COMMAND

HERE = Path(__file__).parent
REFERENCE = HERE.parent.parent / "docs" / "reference"
NODE = HERE / "node" / "gateway"


def test_the_committed_copies_are_what_the_server_serves() -> None:
    made = {
        "gateway-openrpc.json": json.dumps(openrpc(), indent=2) + "\n",
        "gateway-schemas.json": json.dumps(json_schemas(), indent=2) + "\n",
        "gateway-client.ts": typescript(),
    }
    stale = [name for name, text in made.items() if (REFERENCE / name).read_text(encoding="utf-8") != text]
    assert stale == [], "write them anew with `hermes schema openrpc | json | typescript`"


def test_the_openrpc_document_is_one() -> None:
    meta = json.loads((HERE / "openrpc_meta_schema.json").read_text(encoding="utf-8"))
    # The schema of schemas that it refers to is draft 7 under another address.
    address = "https://meta.json-schema.tools"
    own = {"JSONSchemaObject": {"type": "object", "properties": {"$ref": {"type": "string"}}}}
    known: Any = Draft7Validator.META_SCHEMA
    draft7 = {**known, "$id": f"{address}/", "definitions": {**known["definitions"], **own}}
    resource = Resource(contents=draft7, specification=DRAFT7)
    registry: Registry[Any] = Registry().with_resources([(address, resource), (f"{address}/", resource)])
    meta.pop("$schema")
    validator = Draft7Validator(meta, registry=registry)
    assert [error.message for error in validator.iter_errors(openrpc())] == []


def test_every_schema_is_one_and_every_reference_leads_somewhere() -> None:
    document = json_schemas()
    names = set(document["$defs"])
    for name, schema in document["$defs"].items():
        Draft202012Validator.check_schema(schema)
        missing = [ref for ref in references(schema) if ref.removeprefix("#/$defs/") not in names]
        assert missing == [], name
    used = [name for pair in document["methods"].values() for name in pair.values()]
    assert set(used) <= names
    whole = openrpc()
    place = "#/components/schemas/"
    assert {ref.removeprefix(place) for ref in references(whole)} <= set(whole["components"]["schemas"])


def references(value: Any) -> list[str]:
    match value:
        case dict():
            own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
            return own + [ref for item in value.values() for ref in references(item)]
        case list():
            return [ref for item in value for ref in references(item)]
    return []


def test_every_method_refuses_undeclared_keys_in_its_schema_too() -> None:
    document = json_schemas()
    loose = [
        name
        for name, pair in document["methods"].items()
        if document["$defs"][pair["params"]].get("additionalProperties") is not False
    ]
    assert loose == []


def test_every_request_of_the_server_is_in_the_contract() -> None:
    assert set(json_schemas()["serverRequests"]) == {*SERVER_REQUESTS, *BRIDGED_REQUESTS}


@pytest.mark.e2e
async def test_the_typescript_client_compiles_strictly_and_runs_a_session(tmp_path: Path) -> None:
    ready = (NODE / "node_modules" / "typescript" / "package.json").exists()
    problem = None if ready else await trio.to_thread.run_sync(partial(node_problem, NODE))
    if problem is not None:
        pytest.skip(f"TypeScript client: {problem}")
    node = shutil.which("node") or "node"
    folder = tmp_path / "client"
    folder.mkdir()
    for name in ("session.ts", "misuse.ts", "tsconfig.json", "package.json"):
        shutil.copy(NODE / name, folder)
    (folder / "client.ts").write_text(typescript(), encoding="utf-8")
    (folder / "node_modules").symlink_to(NODE / "node_modules")
    with trio.fail_after(180):
        await trio.run_process(
            [node, str(NODE / "node_modules" / "typescript" / "bin" / "tsc"), "--project", str(folder)],
            capture_stdout=True,
        )
        ended = await trio.run_process(
            [node, str(folder / "session.js"), str(COMMAND), "gateway"],
            env={"PATH": "/usr/bin:/bin", "HERMES_HOME": str(tmp_path / "home"), "PROMPT": "run: echo hi"},
            cwd=tmp_path,
            capture_stdout=True,
            capture_stderr=True,
        )
    assert json.loads(ended.stdout) == {
        "epoch": 32,
        "asks": True,
        "cwd": True,
        "status": "streaming",
        "end": "complete",
        "same": True,
        "used": True,
        "roles": ["user", "assistant", "tool", "assistant"],
        "refused": 4001,
        "tools": ["tool.generating", "tool.start", "tool.complete"],
        "code": 0,
    }
