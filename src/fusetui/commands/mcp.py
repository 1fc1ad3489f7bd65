"""`mcp`: answers for agents, by the Model Context Protocol over standard input and output."""

from __future__ import annotations

import os
from argparse import Namespace

from fusetui.commands.errors import DONE, CommandError
from fusetui.tables.frames import needed


def run_mcp(args: Namespace) -> int:
    """Serves until standard input ends. Raises CommandError for a folder that is none, and
    MissingPackage."""
    for folder in args.allow:
        if not os.path.isdir(folder):
            raise CommandError(f"--allow {folder}: this is no folder.")
    needed("mcp.server", "fusetui mcp", "mcp")
    from fusetui.commands.agents.server import serve

    serve(args.allow or ["."])
    return DONE
