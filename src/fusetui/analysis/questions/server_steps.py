"""The steps of a server, and what each was asked to do. They are the outermost
annotations that say so, on the thread that has most of them, and what the annotations
inside them add.

Known forms of their names:

* vLLM, `gpu_worker.py`: `execute_new_2_cached_14`, requests that begin and that go on;
* vLLM: `execute_context_1(888)_generation_16(16)`, requests and new tokens of prefill
  and decode; a second number, as in `(888_788544)`, is the sum of squares of the
  tokens;
* vLLM and SGLang:
  `execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785...)`, sums over the
  requests: sq of new tokens, sk of all tokens that attention reads;
* SGLang, `model_runner.py`: `step[DECODE bs=16]`, `step[EXTEND bs=4 toks=8192]`; bs
  counts requests, and `g_sq`, `g_sk`, `c_sq` and `c_sk` are sums as above, of decode
  and of prefill;
* ATOM: `prefill[bs=2 tok=14721 ctx=[7803, 6918]]`, `decode[bs=117/128 tok=117 d=117]`,
  requests and the requests that the graph is for, new tokens, and of a mixed step p
  prefills; sk as above.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import StrEnum
from functools import lru_cache

import msgspec
import numpy as np

from fusetui.trace.layout.steps import (
    SERVER,
    Steps,
    annotations_with,
    is_of_server,
    steps_of,
)
from fusetui.trace.model.columns import Trace

LONGEST = 400  # characters of a name that are read


class ServerPhase(StrEnum):
    """What a step does."""

    DECODE = "decode"
    PREFILL = "prefill"
    MIXED = "mixed"
    DRAFT = "draft"  # of speculative decoding: proposes tokens
    VERIFY = "verify"  # of speculative decoding: checks them
    IDLE = "idle"
    UNKNOWN = "unknown"


MODES = {
    **{
        "DECODE": ServerPhase.DECODE,
        "MIXED": ServerPhase.MIXED,
        "IDLE": ServerPhase.IDLE,
    },
    **dict.fromkeys(("EXTEND", "SPLIT_PREFILL"), ServerPhase.PREFILL),
    **dict.fromkeys(("DRAFT_EXTEND", "DRAFT_EXTEND_V2"), ServerPhase.DRAFT),
    "TARGET_VERIFY": ServerPhase.VERIFY,
}
"""SGLang's ForwardMode."""


class Requested(msgspec.Struct, frozen=True):
    """The requests of a step; None where the annotation does not say."""

    phase: ServerPhase
    batch: int | None = None  # requests
    new_tokens: int | None = None
    # tokens whose keys and values attention reads, over all requests
    kv_tokens: int | None = None

    @property
    def cached_tokens(self) -> int | None:
        """Tokens that attention reads and that earlier steps computed."""
        if self.kv_tokens is None or self.new_tokens is None:
            return None
        return max(self.kv_tokens - self.new_tokens, 0)


def _phase(prefills: int, decodes: int, tokens: int) -> ServerPhase:
    """`tokens`: of the decodes; more than one of a request are drafts that are
    verified."""
    if prefills:
        return ServerPhase.MIXED if decodes else ServerPhase.PREFILL
    if decodes:
        return ServerPhase.VERIFY if tokens > decodes else ServerPhase.DECODE
    return ServerPhase.IDLE


def _of_both(found: re.Match[str]) -> Requested:
    """Requests, new tokens, and tokens that attention reads if it says so: of prefills,
    then of decodes."""
    numbers = [*map(int, found.groups())]
    prefills, decodes = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    phase = _phase(prefills[0], decodes[0], decodes[1])
    return Requested(phase, *map(sum, zip(prefills, decodes, strict=True)))


def _counted(found: re.Match[str]) -> Requested:
    """Requests that go on may still be in their prefill."""
    return Requested(ServerPhase.UNKNOWN, int(found[1]) + int(found[2]))


def _sglang(found: re.Match[str]) -> Requested:
    phase = MODES.get(found[1], ServerPhase.UNKNOWN)
    values = {
        key: int(value) for key, value in re.findall(r"([a-z_]+)=(\d+)", found[2])
    }
    batch = values.get("bs")
    new = [values[key] for key in ("c_sq", "g_sq") if key in values]
    tokens = values.get(
        "toks", sum(new) if new else batch if phase is ServerPhase.DECODE else None
    )
    sums = [values[key] for key in ("c_sk", "g_sk") if key in values]
    return Requested(phase, batch, tokens, sum(sums) if sums else None)


def _atom(found: re.Match[str]) -> Requested:
    values = {key: int(value) for key, value in re.findall(_SPACED, found[4])}
    batch, tokens, prefills = int(found[2]), values.get("tok"), values.get("p", 0)
    phase = ServerPhase.MIXED if prefills else _phase(0, batch, tokens or 0)
    if found[1] == "prefill":
        phase = ServerPhase.PREFILL
    return Requested(phase, batch, tokens, values.get("sk"))


_N = r"(\d{1,15})"
_SPACED = rf"(?:^| )([a-z]{{1,20}})={_N}(?![^ ])"
_SUMS = rf"{_N}\(sq{_N}sk{_N}[a-z0-9]{{0,80}}\)"
_TOKENS = rf"{_N}\({_N}(?:_\d{{1,30}})*\)"
_FORMS: tuple[tuple[str, Callable[[re.Match[str]], Requested]], ...] = (
    (rf"execute_\d{{1,15}}_context_{_SUMS}_generation_{_SUMS}\Z", _of_both),
    (rf"execute_context_{_TOKENS}_generation_{_TOKENS}\Z", _of_both),
    (rf"execute_new_{_N}_cached_{_N}\Z", _counted),
    (r"step\[([A-Z_0-9]{1,40})((?: [a-z_]{1,20}=\d{1,15}){0,20})\]\Z", _sglang),
    (rf"(prefill|decode)\[bs={_N}(?:/{_N})?((?: .{{0,300}})?)\]\Z", _atom),
)


@lru_cache(maxsize=4096)
def asked_by(name: str) -> Requested | None:
    """What the annotation of this name says; None if it is not one of a server's step.

    >>> asked_by("step[DECODE bs=16]")
    Requested(phase=<Phase.DECODE: 'decode'>, batch=16, new_tokens=16, kv_tokens=None)
    """
    if len(name) > LONGEST:
        return None
    found = ((re.match(pattern, name), read) for pattern, read in _FORMS)
    return next((read(match) for match, read in found if match), None)


def merged(outer: Requested, inner: Requested) -> Requested:
    """What two annotations around the same work say together; the inner one knows the
    phase."""
    said = msgspec.structs.asdict(inner).items()
    known = {
        key: value for key, value in said if value not in (None, ServerPhase.UNKNOWN)
    }
    return msgspec.structs.replace(outer, **known)


class ServerSteps(msgspec.Struct, frozen=True, eq=False):
    """The steps of a server, and what each was asked to do; shape [steps]."""

    steps: Steps
    # None: the annotation has a form that is not known
    asked: tuple[Requested | None, ...]


def server_steps(trace: Trace) -> ServerSteps:
    """The steps of the server, none if no annotation is one; those inside add what they
    know."""
    steps = steps_of(trace, SERVER)
    asked: list[Requested | None] = [None] * len(steps)
    rows = annotations_with(trace, is_of_server)
    number = np.searchsorted(steps.start, trace.start[rows], side="right") - 1
    for row, step in zip(rows.tolist(), number.tolist(), strict=True):
        inner, before = asked_by(trace.name_of(row)), asked[step]
        asked[step] = merged(before, inner) if before and inner else before or inner
    return ServerSteps(steps, tuple(asked))
