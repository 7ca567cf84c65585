"""``hermes tree``: the live tree of the home's running server: print it, watch it, cancel a node of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from hermes.cli.chat_view import one_line
from hermes.cli.options import load, shared_options
from hermes.cli.running_server import gateway_url
from hermes.cli.tables import counted
from hermes.cli.terminal_style import Style, style_of_output

NAME_CHARS: Final = 70
CLEAR: Final = "\x1b[H\x1b[J"


@click.command("tree")
@click.option("--watch", is_flag=True, help="Show every change, until interrupted.")
@click.option("--cancel", "node", metavar="NODE", help="Cancel this node and what is below it; the rest goes on.")
@click.option("--reason", help="With --cancel: told wherever the end of the node is told.")
@click.option(
    "--yes", "-y", is_flag=True, help="With --cancel: do not ask before the whole server or every session ends."
)
@click.option("--json", "as_json", is_flag=True, help="As JSON; with --watch one line for each change.")
@click.option("--url", help="Address of the gateway; default: the server of this home.")
@shared_options
def command(
    watch: bool, node: str | None, reason: str | None, yes: bool, as_json: bool, url: str | None, **shared: Any
) -> None:
    """Show the running server's live tree: what runs, below what, for how long; cancel a node of it."""
    import trio

    from hermes.cli.gateway_client import GatewayConnection, connected

    if node == "":
        raise click.UsageError("--cancel names no node")
    if (reason or yes) and not node:
        raise click.UsageError("--reason and --yes go with --cancel")
    if node and (watch or as_json):
        raise click.UsageError("--cancel shows no tree: leave out --watch and --json")
    address = gateway_url(load(**{**shared, "log_to": shared["log_to"] or "file"}), url)
    if node:
        _cancel(address, node, reason, asks=not yes)
        return
    style = style_of_output()

    def show(tree: Mapping[str, Any]) -> None:
        if as_json:
            click.echo(json.dumps(tree, ensure_ascii=False, indent=None if watch else 2))
            return
        if watch and style.colour:
            sys.stdout.write(CLEAR)
        click.echo("\n".join(tree_lines(tree, style)))

    async def follow(gateway: GatewayConnection) -> None:
        await gateway.call("tree.subscribe", {"subscribed": True})
        show((await gateway.call("tree.get"))["tree"])
        while (frame := await gateway.receive()) is not None:
            params = frame.get("params") or {}
            if params.get("type") == "tree.changed":
                show(params["payload"]["tree"])

    async def run() -> None:
        async with connected(address) as gateway:
            if watch:
                await follow(gateway)
            else:
                show((await gateway.call("tree.get"))["tree"])

    trio.run(run)


def _cancel(address: str, node_id: str, reason: str | None, *, asks: bool) -> None:
    import trio

    from hermes.cli.gateway_client import connected

    async def call(method: str, params: Mapping[str, Any]) -> Any:
        async with connected(address) as gateway:
            return await gateway.call(method, params)

    tree = trio.run(call, "tree.get", {})["tree"]
    node = next((node for node in _nodes(tree) if node.get("node_id") == node_id), {})
    if asks and (what := much_that_ends(node)):
        # Between the connections, so that none is held open by a question.
        if not sys.stdin.isatty():
            raise click.UsageError(f"{node_id} is {what}; --yes says that you mean it")
        click.confirm(f"{node_id} is {what}. Cancel it?", abort=True, err=True)
    done = trio.run(call, "scope.cancel", {"node_id": node_id} | ({"reason": reason} if reason else {}))["cancelled"]
    otherwise = "was being stopped already" if node.get("state") == "stopping" else "has nothing to cancel"
    click.echo(f"{node_id}: {'cancelled' if done else otherwise}")


def _nodes(tree: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield tree
    for child in tree.get("children") or ():
        yield from _nodes(child)


def much_that_ends(node: Mapping[str, Any]) -> str | None:
    """What to ask about before this node is cancelled, if it is more than work of one session."""
    match node.get("kind"):
        case "server":
            return "the whole server: it stops, with everything in it"
        case "surface":
            return "the server's way in: without it the whole server stops, with everything in it"
        case "sessions" if live := len(node.get("children") or ()):
            return f"all live sessions: {counted(live, 'session')} would be closed, with everything in them"
        case _:
            return None


def tree_lines(
    node: Mapping[str, Any], style: Style, before: str = "", last: bool = True, top: bool = True
) -> Iterator[str]:
    """The tree as lines: id, kind, name, state, age, and what stops a stopping node, its deadline and its pids."""
    branch = "" if top else style.sign("└─ ", "`- ") if last else style.sign("├─ ", "|- ")
    name = one_line(str(node.get("name", "")), NAME_CHARS)
    state = str(node.get("state", ""))
    words = [style.dim(str(node.get("node_id", ""))), style.bold(str(node.get("kind", "")))]
    words += [name] if name and name != node.get("kind") else []
    words += [style.yellow(state) if state == "stopping" else style.cyan(state), style.dim(age(node.get("age_s") or 0))]
    if node.get("cause"):
        words.append(style.yellow(" ".join(str(node[key]) for key in ("cause", "reason") if node.get(key))))
    if node.get("deadline_in_s") is not None:
        words.append(style.dim(f"ends in {age(max(0.0, node['deadline_in_s']))}"))
    if node.get("pids"):
        words.append(style.dim(f"pids {' '.join(str(pid) for pid in node['pids'])}"))
    yield f"{before}{branch}{' '.join(words)}"
    children = list(node.get("children") or ())
    below = before if top else before + ("   " if last else style.sign("│  ", "|  "))
    for child in children:
        yield from tree_lines(child, style, below, child is children[-1], False)


def age(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s"
