"""Guess first, then look: `kernels=5 gemm=3 pointwise=2` against what a step really ran.

Parsing, sorting kernel names into kinds and comparing are pure functions; none needs torch.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from .count import Kernels, per_step
from .errors import CaptureError

_TERM = re.compile(r"([a-z_]+)=(\d+)\Z")
_FOR_VARIANT = re.compile(r"\s*([\w.-]+)\s*:")
_WORDS = """
    attention comm conv copy elementwise embedding fill foreach gemm gemv index kernels loss
    memcpy memset moe norm optimizer pointwise pool quant reduction rng rope scan softmax sort
    triton unknown upsample
"""
KINDS = frozenset(_WORDS.split())
"""What can be counted; `kernels` is all of them."""

_ALSO = {"elementwise": "pointwise", "persistent_reduction": "reduction"}
_CPU_KINDS = {
    "gemm": r"mm|addmm|bmm|baddbmm|matmul|linear|_addmm_activation|\w*_linear\w*|einsum|dot",
    "gemv": r"mv|addmv",
    "conv": r"\w*conv(?:olution)?\w*",
    "copy": r"copy_|clone|cat|stack|constant_pad_nd|_to_copy",
    "fill": r"fill_|zero_|zeros\w*|ones\w*|full\w*",
    "norm": r"\w*(?:layer|batch|group|rms)_norm\w*",
    "softmax": r"_?(?:log_)?softmax\w*|_softmax_backward_data",
    "reduction": r"sum|mean|amax|amin|max|min|prod|var|std|norm|var_mean|logsumexp|argmax|any|all",
    "embedding": r"embedding\w*",
    "index": r"index\w*|gather|scatter\w*|masked_fill_?|take\w*",
    "attention": r"_?scaled_dot_product\w*|_flash_attention\w*",
    "rng": r"normal_|uniform_|bernoulli_|random_|native_dropout",
    "sort": r"sort|topk|argsort",
}
_CPU_PATTERNS = [(kind, re.compile(rf"(?:{ops})\Z")) for kind, ops in _CPU_KINDS.items()]
_FUSED = re.compile(r"(?:graph_\d+_)?cpp_fused_(\w*?)_?\d*\Z")
_REDUCES = re.compile(r"(?:_|\b)(?:sum|mean|norm|softmax|max|min|amax|amin|var|prod)(?:_|\b)")


@dataclass(frozen=True)
class Guess:
    """One term of a guess beside what was found per step."""

    kind: str
    expected: int
    found: float

    @property
    def right(self) -> bool:
        """Was it guessed right."""
        return self.found == self.expected


def parse(guess: str) -> dict[str, int]:
    """`kernels=5 gemm=3` -> counts by kind. Raises CaptureError for what is no guess."""
    found: dict[str, int] = {}
    for term in guess.replace(",", " ").split():
        match = _TERM.match(term)
        if not match or match[1] not in KINDS:
            known = ", ".join(sorted(KINDS))
            raise CaptureError(
                f"'{term}' is no guess such as gemm=3: what can be counted is {known}."
            )
        found[match[1]] = int(match[2])
    if not found:
        raise CaptureError('the guess is empty: try --expect "kernels=5 gemm=3".')
    return found


def parse_for(guesses: Iterable[str], variants: Sequence[str]) -> dict[str, dict[str, int]]:
    """The guesses of each variant: `gemm=3` holds for all of them, `eager: gemm=3` for one.

    Raises CaptureError for an unknown variant or what is no guess.
    """
    found: dict[str, dict[str, int]] = {name: {} for name in variants}
    for guess in guesses:
        match = _FOR_VARIANT.match(guess)
        if match and match[1] not in found:
            raise CaptureError(f"--expect names '{match[1]}', which is not among the variants run.")
        terms = parse(guess[match.end() :] if match else guess)
        for name in [match[1]] if match else variants:
            found[name] |= terms
    return found


def compare(expected: Mapping[str, int], kernels: Kernels) -> tuple[Guess, ...]:
    """Every term of a guess beside the number per step in a trace."""
    tally = tally_of(kernels.names) + Counter(memcpy=kernels.copies, memset=kernels.sets)
    return tuple(
        Guess(kind, count, per_step(tally[kind], kernels.steps)) for kind, count in expected.items()
    )


def tally_of(names: Iterable[str]) -> Counter[str]:
    """How many kernels count as each kind; one kernel can count as several."""
    tally: Counter[str] = Counter()
    for name, times in Counter(names).items():
        for kind in kinds(name) | {"kernels"}:
            tally[kind] += times
    return tally


def kinds(name: str) -> frozenset[str]:
    """Everything that a GPU kernel or a CPU compute op of this name counts as."""
    if name.startswith("aten::") or _FUSED.match(name):
        return frozenset({_cpu_kind(name)})
    from fusetui.trace.kernel_names import decode  # loads numpy, which a capture may not need

    decoded = decode(name)
    if decoded is None:
        return frozenset({"unknown"})
    words = {decoded.op, decoded.kernel_category, decoded.family} - {None}
    return frozenset(str(word) for word in words | {_ALSO[w] for w in words if w in _ALSO})


def guess_lines(variant: str, guesses: Sequence[Guess]) -> list[str]:
    """`= eager kernels  guess 5  found 5`, with a `!` in front of a wrong guess."""
    return [
        f"{'=' if g.right else '!'} {variant} {g.kind}: guess {g.expected}, found {g.found:g}"
        for g in guesses
    ]


def _cpu_kind(name: str) -> str:
    """The kind of an ATen op or of a fused C++ kernel; whatever is nothing else is pointwise."""
    if fused := _FUSED.match(name):
        return "reduction" if _REDUCES.search(fused[1]) else "pointwise"
    op = name.removeprefix("aten::")
    return next((kind for kind, ops in _CPU_PATTERNS if ops.match(op)), "pointwise")
