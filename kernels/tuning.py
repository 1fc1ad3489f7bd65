"""Which tile is fastest for some sizes on this GPU, where somebody asks for it.

With FUSETUI_AUTOTUNE=FILE.json the first launch of a GEMM with new sizes times the tile
of tiles.json and a few like it, and the choice is kept in that file: later launches and
later processes take it from there. Without it every choice follows from tiles.json
alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from .tiles import Tile

VARIABLE = "FUSETUI_AUTOTUNE"
LEAST_SIDE = 16
"""Of a tile, in elements: what `tl.dot` takes at least."""

Launch = Callable[[Tile], None]
Timer = Callable[[Callable[[], None]], float]
"""The time that a call takes, in any unit."""

_known: dict[Path, dict[str, Tile]] = {}
"""By file: the choices that this process has read or made."""


def tuned(key: str, tile: Tile, launch: Launch, timer: Timer | None = None) -> Tile:
    """The fastest tile for what `key` names; `tile` itself unless autotuning is on. A
    candidate that does not compile or does not fit is passed over, and so is a kept
    choice that is no candidate: the inputs are laid out for the depth of `tile`, and a
    kernel with another one would read beyond them."""
    name = os.environ.get(VARIABLE)
    if not name:
        return tile
    path = Path(name).absolute()
    if path not in _known:
        _known[path] = read(path)
    choices = _known[path]
    allowed = candidates(tile)
    if choices.get(key) not in allowed:
        choices[key] = fastest(allowed, launch, timer or bench)
        write(path, choices)
    return choices[key]


def candidates(tile: Tile) -> list[Tile]:
    """The tile itself, and those with half a side, other warps or one stage less."""
    found = [tile]
    if tile.m // 2 >= LEAST_SIDE:
        found.append(tile._replace(m=tile.m // 2))
    if tile.n // 2 >= LEAST_SIDE:
        found.append(tile._replace(n=tile.n // 2))
    if tile.warps > 1:
        found.append(tile._replace(warps=tile.warps // 2))
    if tile.stages > 2:
        found.append(tile._replace(stages=tile.stages - 1))
    return found


def fastest(tiles: Sequence[Tile], launch: Launch, timer: Timer) -> Tile:
    """The tile with the shortest time; the first one if none of them runs."""
    times: dict[Tile, float] = {}
    for tile in tiles:
        with suppress(Exception):  # whatever the compiler or the device finds to say
            times[tile] = timer(lambda tile=tile: launch(tile))  # type: ignore[misc]
    return min(times, key=lambda tile: times[tile], default=tiles[0])


def bench(call: Callable[[], None]) -> float:
    """The median time of a call on the GPU, in ms."""
    from triton.testing import do_bench

    return float(do_bench(call, return_mode="median"))


def read(path: Path) -> dict[str, Tile]:
    """The choices of a file; none of one that is missing or not as it should be."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return {str(key): Tile(*map(int, values)) for key, values in content.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def write(path: Path, choices: dict[str, Tile]) -> None:
    """Keeps the choices, with those that another process has made meanwhile; a file
    that cannot be written is left out."""
    merged = {**read(path), **choices}
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(merged, indent=1) + "\n", encoding="utf-8")
        part.replace(path)
