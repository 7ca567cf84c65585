"""Reads the syntax trees of the package and finds what the house rules forbid; ``tests/test_house_rules.py`` asserts.

Each rule is a function from a module to its violations. What a rule allows stands in a table beside it, so that an
exception to a rule is a line that a reviewer sees.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60

BOUNDARIES = frozenset(
    {
        "nurseries/containment.py",
        "protocols/rpc/dispatcher.py",
        "protocols/http/surface.py",
        # Both hand the error on: to the waiting caller, and to the Trio side.
        "agent/store/writer.py",
        "nurseries/asyncio_island.py",
    }
)
# The last one starts no thread: it asks which one it is in.
THREADING = frozenset({"agent/store/writer.py", "embedding/blocking.py", "agent/tools/base.py"})
CODES = frozenset({"protocols/error_table.py", "protocols/wire/jsonrpc.py"})

# Packages that may be imported inside a function, and where ("" is everywhere).
LAZY_IMPORTS: frozenset[tuple[str, str]] = frozenset(
    {
        ("", "mcp"),
        ("", "trio_asyncio"),
        ("", "opentelemetry"),
        ("", "rich"),
        ("", "quart"),
        ("", "quart_trio"),
        ("cli/", "hermes"),
        ("cli/", "trio"),
        ("cli/", "prompt_toolkit"),
        # The parser of rich.
        ("cli/", "markdown_it"),
        ("app.py", "hermes"),
        ("app.py", "trio"),
        # Start-up: most homes have no file to parse, and the client library is first needed by the first model call.
        ("config_file.py", "ruamel"),
        ("agent/tools/lint.py", "ruamel"),
        ("agent/tools/lint.py", "tomllib"),
        ("agent/tools/registry.py", "importlib"),
        ("logs.py", "hermes"),
        ("protocols/gateway/surface.py", "hermes"),
        ("protocols/gateway/websocket.py", "hermes"),
        ("agent/tools/skill_library.py", "ruamel"),
        ("agent/providers/error_reports.py", "email"),
        ("agent/providers/http_stream.py", "httpx2"),
        # The same, for the first MCP server and for the first plugin that needs asyncio.
        ("nurseries/mcp_transport.py", "httpx2"),
        ("nurseries/asyncio_island.py", "asyncio"),
    }
)
DYNAMIC_IMPORTS = ("__init__.py", "testing/__init__.py", "cli/", "app.py")

MUTABLE_TYPES = frozenset(
    {"list", "dict", "set", "bytearray", "defaultdict", "deque", "OrderedDict", "Counter", "WeakValueDictionary"}
    | {"WeakKeyDictionary", "WeakSet", "count", "cycle", "Lock", "Event", "Semaphore", "CapacityLimiter"}
)
MUTATORS = frozenset(
    {"append", "extend", "insert", "remove", "pop", "popitem", "clear", "update", "setdefault", "add", "discard"}
)
HTTP_ERRORS = frozenset(
    {400, 401, 402, 403, 404, 405, 406, 408, 409, 410, 411, 413, 414, 415, 417, 418, 421, 422, 424, 425, 426, 428, 429}
    | {431, 451, 500, 501, 502, 503, 504}
)
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b|(?i:\bfor now\b|\bnot (yet )?implemented\b)")


@dataclass(frozen=True)
class Module:
    """One file: ``name`` is its path below the package, with slashes."""

    name: str
    source: str
    tree: ast.Module

    def where(self, node: ast.AST, what: str) -> str:
        return f"{self.name}:{getattr(node, 'lineno', 0)}: {what}"


Rule = Callable[[Module], Iterator[str]]


def modules(package: Path) -> list[Module]:
    found = []
    for path in sorted(package.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        found.append(Module(path.relative_to(package).as_posix(), source, ast.parse(source)))
    return found


def parse(name: str, source: str) -> Module:
    return Module(name, source, ast.parse(source))


def _dotted(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def _imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node, node.module
            for alias in node.names:
                yield node, f"{node.module}.{alias.name}"


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


# --- the rules -------------------------------------------------------------------------------------------------------


def nurseries_and_scopes(module: Module) -> Iterator[str]:
    if module.name.startswith(("nurseries/", "testing/")):
        return
    for node in ast.walk(module.tree):
        name = _dotted(node).rpartition(".")[2] if isinstance(node, ast.Attribute | ast.Name) else ""
        if name in ("open_nursery", "CancelScope"):
            yield module.where(node, name)
    for statement, name in _imports(module.tree):
        if name.rpartition(".")[2] in ("open_nursery", "CancelScope"):
            yield module.where(statement, f"import of {name}")


def asyncio(module: Module) -> Iterator[str]:
    if module.name == "nurseries/asyncio_island.py":
        return
    for node, name in _imports(module.tree):
        if name.split(".")[0] in ("asyncio", "trio_asyncio"):
            yield module.where(node, f"import of {name}")


def threads(module: Module) -> Iterator[str]:
    if module.name in THREADING:
        return
    for node, name in _imports(module.tree):
        if name.split(".")[0] in ("threading", "_thread") or name.startswith("concurrent.futures"):
            yield module.where(node, f"import of {name}")


def sleeping(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and _dotted(node) == "time.sleep":
            yield module.where(node, "time.sleep")
    for statement, name in _imports(module.tree):
        if name == "time.sleep":
            yield module.where(statement, "time.sleep")


def environment(module: Module) -> Iterator[str]:
    if module.name == "config.py":
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and _dotted(node) in ("os.environ", "os.environb", "os.getenv", "os.putenv"):
            yield module.where(node, _dotted(node))
    for statement, name in _imports(module.tree):
        if name in ("os.environ", "os.getenv", "os.putenv"):
            yield module.where(statement, name)


def printing(module: Module) -> Iterator[str]:
    # testing/seed.py is a command of its own: python -m hermes.testing.seed.
    if module.name.startswith("cli/") or module.name == "testing/seed.py":
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and _dotted(node.func) in ("print", "click.echo", "sys.stdout.write"):
            yield module.where(node, _dotted(node.func))


def file_locations(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and node.id == "__file__":
            yield module.where(node, "__file__")


def globals_(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Global):
            yield module.where(node, f"global {', '.join(node.names)}")


def module_state(module: Module) -> Iterator[str]:
    """Lists, dicts and sets at module level must look like constants and never be changed."""
    constants = set()
    for statement in module.tree.body:
        if not isinstance(statement, ast.Assign | ast.AnnAssign) or statement.value is None:
            continue
        if not _is_mutable(statement.value):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            name = _dotted(target)
            if name == "__all__" or (name.isupper() and not isinstance(statement.value, ast.Call)):
                constants.add(name)
            else:
                yield module.where(statement, f"module-level mutable {name}")
    yield from _mutations(module, constants)


def _is_mutable(value: ast.expr) -> bool:
    if isinstance(value, ast.Call):
        return _dotted(value.func).rpartition(".")[2] in MUTABLE_TYPES
    return isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp | ast.SetComp)


def _mutations(module: Module, constants: set[str]) -> Iterator[str]:
    for node in ast.walk(module.tree):
        called = node.func if isinstance(node, ast.Call) else None
        if isinstance(called, ast.Attribute) and called.attr in MUTATORS and _dotted(called.value) in constants:
            yield module.where(node, f"{_dotted(called)}() changes a constant")
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Subscript) and _dotted(target.value) in constants:
                yield module.where(node, f"item of {_dotted(target.value)} changed")


def lazy_imports(module: Module) -> Iterator[str]:
    for function in _functions(module.tree):
        for statement, name in _imports(function):
            package = name.split(".")[0]
            if not any(module.name.startswith(place) and package == lazy for place, lazy in LAZY_IMPORTS):
                yield module.where(statement, f"import of {name} in {function.name}()")
    if not module.name.startswith(DYNAMIC_IMPORTS):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and _dotted(node.func).rpartition(".")[2] in ("import_module", "__import__"):
                yield module.where(node, "import by name")


def broad_handlers(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.ExceptHandler):
            continue
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        names = {_dotted(kind).rpartition(".")[2] if kind is not None else "BaseException" for kind in kinds}
        if names & {"BaseException", "BaseExceptionGroup"} and not isinstance(node.body[-1], ast.Raise):
            yield module.where(node, "except BaseException that does not raise again")
        if "Exception" in names and module.name not in BOUNDARIES:
            yield module.where(node, "except Exception")
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and _dotted(node.func).rpartition(".")[2] == "suppress":
            broad = {_dotted(argument) for argument in node.args} & {"Exception", "BaseException"}
            if broad:
                yield module.where(node, f"suppress({', '.join(broad)})")


def error_codes(module: Module) -> Iterator[str]:
    """Codes of our own wires. What providers answer, and the fake that answers like one, is not ours."""
    if module.name in CODES or module.name.startswith("testing/"):
        return
    for node in ast.walk(module.tree):
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            if isinstance(node.operand.value, int) and 32000 <= node.operand.value <= 32999:
                yield module.where(node, f"-{node.operand.value}")
        elif isinstance(node, ast.Constant) and type(node.value) is int and module.name.startswith("protocols/"):
            gateway_code = 4001 <= node.value <= 4095 or 5001 <= node.value <= 5099
            if node.value in HTTP_ERRORS or gateway_code:
                yield module.where(node, str(node.value))


def sizes(module: Module) -> Iterator[str]:
    lines = module.source.count("\n")
    if lines > MAX_FILE_LINES:
        yield f"{module.name}: {lines} lines"
    for function in _functions(module.tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > MAX_FUNCTION_LINES:
            yield module.where(function, f"{function.name}() has {length} lines")


def opening_docstrings(module: Module) -> Iterator[str]:
    if module.source.strip() and ast.get_docstring(module.tree) is None:
        yield f"{module.name}: no docstring"


def unfinished_words(module: Module) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(module.source).readline):
        if token.type == tokenize.COMMENT and UNFINISHED.search(token.string):
            yield f"{module.name}:{token.start[0]}: {token.string}"
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if match := UNFINISHED.search(ast.get_docstring(node) or ""):
            yield module.where(node, match[0])


RULES: tuple[Rule, ...] = (
    nurseries_and_scopes,
    asyncio,
    threads,
    sleeping,
    environment,
    printing,
    file_locations,
    globals_,
    module_state,
    lazy_imports,
    broad_handlers,
    error_codes,
    sizes,
    opening_docstrings,
    unfinished_words,
)
