"""A tool server made with the official package.

A program of its own; run it with ``stdio``, ``http PORT`` or ``sse PORT``.
"""

from __future__ import annotations

import base64
import os
import sys

import anyio
from mcp.server.mcpserver import Context, Image, MCPServer

server = MCPServer("specimen")


def note(text: str) -> None:
    """Leave a line where the test reads."""
    with open(os.environ["SPECIMEN_NOTES"], "a") as file:
        file.write(text + "\n")


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def slow(seconds: float) -> str:
    """Take a while."""
    note("slow began")
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        note("slow was cancelled")
        raise
    return "done"


@server.tool()
async def steps(count: int, ctx: Context) -> str:
    """Report progress."""
    for number in range(count):
        await ctx.report_progress(number + 1, count, f"step {number + 1}")
    return "all steps done"


@server.tool()
def picture() -> Image:
    """A very small picture."""
    pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    return Image(data=base64.b64decode(pixel), format="png")


@server.tool()
def variables() -> str:
    """The names of the environment."""
    return " ".join(sorted(os.environ))


@server.tool()
def refuse() -> str:
    """Fail."""
    raise ValueError("not today")


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("streamable-http", port=int(sys.argv[2]))
    elif sys.argv[1] == "sse":
        server.run("sse", port=int(sys.argv[2]))
    else:
        server.run("stdio")
