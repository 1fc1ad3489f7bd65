"""The steps of a server, and the request of each. They are the outermost annotations
that say so, on the thread that has most of them, and what the annotations inside them
add.

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
from collections.abc import Callable, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple

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

_MAX_NAME_CHARACTERS: Final = 400


class ServerPhase(StrEnum):
    """The work of a step."""

    DECODE = "decode"
    PREFILL = "prefill"
    MIXED = "mixed"
    DRAFT = "draft"  # of speculative decoding: proposes tokens
    VERIFY = "verify"  # of speculative decoding: checks them
    IDLE = "idle"
    UNKNOWN = "unknown"


_FORWARD_MODES: Final = {
    "DECODE": ServerPhase.DECODE,
    "MIXED": ServerPhase.MIXED,
    "IDLE": ServerPhase.IDLE,
    "EXTEND": ServerPhase.PREFILL,
    "SPLIT_PREFILL": ServerPhase.PREFILL,
    "DRAFT_EXTEND": ServerPhase.DRAFT,
    "DRAFT_EXTEND_V2": ServerPhase.DRAFT,
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


def _phase(prefills: int, decodes: int, decode_tokens: int) -> ServerPhase:
    """What a step with so many requests of each sort does. More than one token of a
    decode are drafts that are verified."""
    if prefills:
        return ServerPhase.MIXED if decodes else ServerPhase.PREFILL
    if decodes:
        is_verified = decode_tokens > decodes
        return ServerPhase.VERIFY if is_verified else ServerPhase.DECODE
    return ServerPhase.IDLE


def _from_sums(match: re.Match[str]) -> Requested:
    """vLLM or SGLang, with sums over the requests."""
    prefills, prefill_tokens, prefill_kv, decodes, decode_tokens, decode_kv = (
        int(digits) for digits in match.groups()
    )
    return Requested(
        phase=_phase(prefills, decodes, decode_tokens),
        batch=prefills + decodes,
        new_tokens=prefill_tokens + decode_tokens,
        kv_tokens=prefill_kv + decode_kv,
    )


def _from_tokens(match: re.Match[str]) -> Requested:
    """vLLM, with requests and new tokens."""
    prefills, prefill_tokens, decodes, decode_tokens = (
        int(digits) for digits in match.groups()
    )
    return Requested(
        phase=_phase(prefills, decodes, decode_tokens),
        batch=prefills + decodes,
        new_tokens=prefill_tokens + decode_tokens,
    )


def _from_counts(match: re.Match[str]) -> Requested:
    """vLLM, with requests that begin and that go on, which may still be in their
    prefill."""
    return Requested(
        phase=ServerPhase.UNKNOWN, batch=int(match["new"]) + int(match["cached"])
    )


def _from_sglang(match: re.Match[str]) -> Requested:
    """What a step of SGLang is asked to do, from the annotation it writes."""
    phase = _FORWARD_MODES.get(match["mode"], ServerPhase.UNKNOWN)
    texts = re.findall(r"([a-z_]+)=(\d+)", match["values"])
    values = {key: int(digits) for key, digits in texts}
    batch = values.get("bs")
    new_tokens = values.get("toks")
    if new_tokens is None:
        new_tokens = _sum_of(values, "c_sq", "g_sq")
    if new_tokens is None and phase is ServerPhase.DECODE:
        new_tokens = batch
    return Requested(
        phase=phase,
        batch=batch,
        new_tokens=new_tokens,
        kv_tokens=_sum_of(values, "c_sk", "g_sk"),
    )


def _sum_of(values: Mapping[str, int], *keys: str) -> int | None:
    """The sum of those values that there are; None if there is none."""
    known = [values[key] for key in keys if key in values]
    return sum(known) if known else None


def _from_atom(match: re.Match[str]) -> Requested:
    """What a step of ATOM is asked to do, from the annotation it writes."""
    texts = re.findall(_SPACED_VALUE, match["values"])
    values = {key: int(digits) for key, digits in texts}
    batch = int(match["batch"])
    new_tokens = values.get("tok")
    if match["phase"] == "prefill":
        phase = ServerPhase.PREFILL
    elif values.get("p", 0):
        phase = ServerPhase.MIXED
    else:
        phase = _phase(prefills=0, decodes=batch, decode_tokens=new_tokens or 0)
    return Requested(
        phase=phase, batch=batch, new_tokens=new_tokens, kv_tokens=values.get("sk")
    )


_N = r"(\d{1,15})"
_SPACED_VALUE = rf"(?:^| )([a-z]{{1,20}})={_N}(?![^ ])"
_SUMS = rf"{_N}\(sq{_N}sk{_N}[a-z0-9]{{0,80}}\)"
_TOKENS = rf"{_N}\({_N}(?:_\d{{1,30}})*\)"


class _Form(NamedTuple):
    """A form of the names of steps."""

    pattern: str
    read: Callable[[re.Match[str]], Requested]


_FORMS: Final = (
    _Form(
        rf"execute_\d{{1,15}}_context_{_SUMS}_generation_{_SUMS}\Z",
        _from_sums,
    ),
    _Form(
        rf"execute_context_{_TOKENS}_generation_{_TOKENS}\Z",
        _from_tokens,
    ),
    _Form(
        r"execute_new_(?P<new>\d{1,15})_cached_(?P<cached>\d{1,15})\Z",
        _from_counts,
    ),
    _Form(
        r"step\[(?P<mode>[A-Z_0-9]{1,40})(?P<values>(?: [a-z_]{1,20}=\d{1,15}){0,20})\]\Z",
        _from_sglang,
    ),
    _Form(
        r"(?P<phase>prefill|decode)\[bs=(?P<batch>\d{1,15})(?:/\d{1,15})?"
        r"(?P<values>(?: .{0,300})?)\]\Z",
        _from_atom,
    ),
)


@lru_cache(maxsize=4096)
def asked_by(name: str) -> Requested | None:
    """What the annotation of this name says; None if it is not one of a server's step.

    >>> asked_by("step[DECODE bs=16]")
    Requested(phase=<Phase.DECODE: 'decode'>, batch=16, new_tokens=16, kv_tokens=None)
    """
    if len(name) > _MAX_NAME_CHARACTERS:
        return None
    for form in _FORMS:
        match = re.match(form.pattern, name)
        if match:
            return form.read(match)
    return None


def merged(outer: Requested, inner: Requested) -> Requested:
    """What two annotations around the same work say together; the inner one knows the
    phase."""
    known = {
        field: value
        for field, value in msgspec.structs.asdict(inner).items()
        if value not in (None, ServerPhase.UNKNOWN)
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
    step_of_rows = np.searchsorted(steps.start, trace.start[rows], side="right") - 1
    for row, step in zip(rows.tolist(), step_of_rows.tolist(), strict=True):
        outer = asked[step]
        inner = asked_by(trace.name_of(row))
        asked[step] = merged(outer, inner) if outer and inner else outer or inner
    return ServerSteps(steps=steps, asked=tuple(asked))
