"""Measures which tile is fastest for certain sizes on this GPU, if the user requests
it.

With FUSETUI_AUTOTUNE=FILE.json, the first launch of a GEMM with new sizes times the
tile of tiles.json and a few like it. The choice is kept in that file, from which later
launches and later processes take it. Without the variable, tiles.json alone decides.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from .tiles import Tile

VARIABLE = "FUSETUI_AUTOTUNE"
MIN_SIDE = 16
"""Of a tile, in elements: the minimum of `tl.dot`."""
MIN_STAGES = 2

Launch = Callable[[Tile], None]
"""Launches the kernel with a tile."""
Timer = Callable[[Callable[[], None]], float]
"""The time that a call takes, in any unit."""

_choices_of_file: dict[Path, dict[str, Tile]] = {}
"""The tile by key that this process has read from a file or chosen since."""


def tuned(key: str, tile: Tile, launch: Launch, timer: Timer | None = None) -> Tile:
    """Return the fastest tile among those like `tile`, or `tile` itself unless
    autotuning is on.

    `key` names the kernel, the GPU, the precision and the sizes. `launch` runs the
    kernel with a tile; one with which it does not compile or run is passed over. A
    choice from the file counts only if it is a candidate. The inputs are laid out for
    the depth of `tile`, and a kernel with another depth would read beyond them.
    """
    file_name = os.environ.get(VARIABLE)
    if not file_name:
        return tile

    path = Path(file_name).absolute()
    if path not in _choices_of_file:
        _choices_of_file[path] = read(path)

    choices = _choices_of_file[path]
    allowed = list_candidates(tile)
    if choices.get(key) not in allowed:
        choices[key] = fastest(allowed, launch, timer or bench)
        write(path, choices)

    return choices[key]


def list_candidates(tile: Tile) -> list[Tile]:
    """Return the tile itself, and those that differ from it in one thing: half the
    rows, half the columns, half the warps, or one stage less."""
    tiles = [tile]
    if tile.m // 2 >= MIN_SIDE:
        tiles.append(tile._replace(m=tile.m // 2))

    if tile.n // 2 >= MIN_SIDE:
        tiles.append(tile._replace(n=tile.n // 2))

    if tile.warps > 1:
        tiles.append(tile._replace(warps=tile.warps // 2))

    if tile.stages > MIN_STAGES:
        tiles.append(tile._replace(stages=tile.stages - 1))

    return tiles


def fastest(tiles: Sequence[Tile], launch: Launch, timer: Timer) -> Tile:
    """Return the tile with the shortest time, or the first one if the kernel runs with
    none."""
    times: dict[Tile, float] = {}
    for tile in tiles:
        with suppress(Exception):  # any error of the compiler or the device
            times[tile] = timer(partial(launch, tile))
    return min(times, key=lambda tile: times[tile], default=tiles[0])


def bench(call: Callable[[], None]) -> float:
    """The median time of a call on the GPU, in ms."""
    from triton.testing import do_bench

    return float(do_bench(call, return_mode="median"))


def read(path: Path) -> dict[str, Tile]:
    """Return the tile by key that a file has. Empty if the file is missing or its
    content is not as it should be."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Tile])
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return {}


def write(path: Path, choices: dict[str, Tile]) -> None:
    """Add the choices to those of the file, which another process may have changed
    meanwhile. The file is replaced as a whole; if it cannot be written, nothing
    happens."""
    merged = {**read(path), **choices}
    content = msgspec.json.format(msgspec.json.encode(merged), indent=1) + b"\n"
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    # a choice that cannot be kept is measured again next time
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(content)
        part.replace(path)
