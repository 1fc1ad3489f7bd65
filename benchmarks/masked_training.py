"""Whether the zeros of the big layer stay zero in training: with the mask and without
it.

    python -P benchmarks/masked_training.py [--steps 50] [--write]

Trains `big` (A) and `masked` (C) of partitioned-linear from the same weights on random
data, each with two optimizers, and counts the off-block weights that are not zero. With
`--write` the table goes into docs/experiments.md. On a CPU it takes a few seconds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

import torch
from torch.nn.functional import mse_loss

sys.path.append(str(Path(__file__).parents[1]))

from benchmarks.pages import put

from fusetui import kernels
from fusetui.kernels.partitioned_linear import Big, Masked, convert, random_loop
from fusetui.text.tables import Column, table

PAGE = Path(__file__).resolve().parents[1] / "docs" / "experiments.md"
FORMS = {"big (A)": Big, "masked (C)": Masked}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "AdamW": lambda parameters: torch.optim.AdamW(
        parameters, lr=1e-3, weight_decay=0.1
    ),
}


def filled(form: type[Big], optimizer: str, steps: int) -> tuple[int, int]:
    """Return how many off-block weights are not zero after training a form of the
    layer, and how many there are."""
    torch.manual_seed(0)
    shapes = kernels.outline("partitioned-linear").cpu_shapes
    n, inputs, outputs = shapes["n"], shapes["in_features"], shapes["out_features"]
    layer = convert(random_loop(n, inputs, outputs), form)
    off_block = torch.block_diag(*torch.ones(n, outputs, inputs)) == 0

    trainer = OPTIMIZERS[optimizer](layer.parameters())
    for _ in range(steps):
        x = torch.randn(shapes["batch"], n, inputs)
        wanted = torch.randn(shapes["batch"], n, outputs)
        trainer.zero_grad()
        mse_loss(layer(x), wanted).backward()
        trainer.step()

    return int((layer.weight[off_block] != 0).sum()), int(off_block.sum())


def main() -> None:
    """Train all forms with all optimizers and print the table; with --write it goes
    into the page."""
    parser = argparse.ArgumentParser(
        description="Whether the zeros stay zero in training."
    )
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--write", action="store_true")

    options = parser.parse_args()
    rows = []
    for name, form in FORMS.items():
        for optimizer in OPTIMIZERS:
            changed, count = filled(form, optimizer, options.steps)
            answer = "no" if changed else "yes"
            rows.append((name, optimizer, f"{changed:,} of {count:,}", answer))

    columns = [Column(name, left=True) for name in ("variant", "optimizer")]
    columns += [
        Column("off-block weights that are not 0"),
        Column("the zeros stay", left=True),
    ]
    text = f"after {options.steps} steps\n\n{table(columns, rows)}"
    print(text)

    if options.write:
        put(PAGE, "zeros", f"```\n{text}\n```", __file__)


if __name__ == "__main__":
    main()
