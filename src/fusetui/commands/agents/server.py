"""Serves the Model Context Protocol on standard input and output, with the official
SDK.

While it serves, the SDK keeps the two streams to itself: whatever else this process
prints goes to standard error.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from typing import Any

from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolResult,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
)

from fusetui import __version__
from fusetui.commands.agents.answers import Answerer, encode_json
from fusetui.commands.agents.input import filter_input
from fusetui.commands.agents.tools import DATA, TOOLS, description, schema, taken
from fusetui.commands.crash import describe_crash
from fusetui.commands.errors import OUR_SENTENCES
from fusetui.text.printable import printable, without_credentials

INSTRUCTIONS = (
    "fusetui reports where PyTorch programs spend their time, from torch.profiler "
    "traces. Call open first, then why, then the tables that show what why names. "
    "Times are in ns. An answer that "
    f"exceeds max_tokens continues with its cursor. {DATA}"
)
MAX_CALLS_AT_ONCE = 64
"""More wait."""

READS = ToolAnnotations(
    read_only_hint=True, idempotent_hint=True, open_world_hint=False
)


def serve(folders: Sequence[str]) -> None:
    """Serve the Model Context Protocol until standard input ends. Only files in
    `folders` can be read. Raises BrokenPipeError when nobody reads the answers."""
    # Asyncio would replace the default handler, and wait for the next line of input.
    signal.signal(signal.SIGINT, lambda *given: signal.default_int_handler(*given))
    try:
        with filter_input():
            asyncio.run(_run_server(make_server(folders)))
    except* BrokenPipeError:
        raise BrokenPipeError from None


async def _run_server(server: Server[Any]) -> None:
    """Run a server on standard input and output until the input ends. If nobody reads
    the answers, all other tasks are cancelled too."""
    async with stdio_server() as (requests, responses):
        try:
            await server.run(
                requests, responses, server.create_initialization_options()
            )
        except asyncio.CancelledError:  # nobody reads: do not wait for the next line
            for task in asyncio.all_tasks():
                task.cancel()
            raise


def tool_definitions() -> list[Tool]:
    """Return the definitions of all tools, as clients see them: name, description and
    schema of the arguments."""
    return [
        Tool(
            name=name,
            description=description(name),
            input_schema=schema(taken(name)),
            annotations=READS,
        )
        for name in TOOLS
    ]


def make_server(folders: Sequence[str]) -> Server[Any]:
    """Return a server of the Model Context Protocol that reads traces in these folders
    only. Each call runs in a thread, at most MAX_CALLS_AT_ONCE at a time."""
    answerer = Answerer(folders)
    # Calls that wait for others, or for a query, must not keep the next one from a
    # thread.
    threads = ThreadPoolExecutor(MAX_CALLS_AT_ONCE, thread_name_prefix="call")

    async def listed(*_: object) -> ListToolsResult:
        return ListToolsResult(tools=tool_definitions())

    async def called(_: object, asked: Any) -> CallToolResult:
        is_cancelled = Event()
        call = partial(
            answerer.call, asked.name, asked.arguments or {}, is_cancelled.is_set
        )
        try:
            answer = await asyncio.get_running_loop().run_in_executor(threads, call)
        except asyncio.CancelledError:  # the thread stops reading, and ends its query
            is_cancelled.set()
            raise
        except Exception as error:
            is_ours = isinstance(error, OUR_SENTENCES)
            error_text = str(error) if is_ours else describe_crash(error)
            sentence = printable(without_credentials(error_text))
            return CallToolResult(content=[TextContent(text=sentence)], is_error=True)
        return CallToolResult(
            content=[TextContent(text=encode_json(answer))], structured_content=answer
        )

    return Server(
        "fusetui",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=listed,
        on_call_tool=called,
    )
