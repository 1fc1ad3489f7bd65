"""The steps of an inference server, and which requests each of them worked on.

A step is an annotation that a server writes around it. Of annotations inside one
another it is the outermost one, to which those inside add what they know. Steps are
those of the thread that has most of them.

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

from fusetui.trace.layout.steps import (
    SERVER,
    Steps,
    annotations_with,
    is_of_server,
    steps_of,
)
from fusetui.trace.model.arrays import last_at_or_before
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
    """What a step of a server had to do; None where its annotation does not say."""

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


def _determine_phase(prefills: int, decodes: int, decode_tokens: int) -> ServerPhase:
    """Determine the phase of a step from its requests.

    E.g. 1 prefill and 2 decodes are MIXED. 2 decodes with 2 tokens are a DECODE, but
    with 8 tokens a VERIFY: those beyond one per request are drafts to be checked.

    Args:
        prefills: How many requests are in their prefill.
        decodes: How many are in their decode.
        decode_tokens: How many new tokens the latter have together.
    """
    if prefills:
        return ServerPhase.MIXED if decodes else ServerPhase.PREFILL
    if decodes:
        is_verified = decode_tokens > decodes
        return ServerPhase.VERIFY if is_verified else ServerPhase.DECODE
    return ServerPhase.IDLE


def _parse_name_with_sums(match: re.Match[str]) -> Requested:
    """Read what a step of vLLM or SGLang had to do from sums over its requests.

    The name is `execute_32_context_0(sq0sk0...)_generation_32(sq32sk32785...)`. It has
    the number of requests, their new tokens (sq), and the tokens that attention reads
    (sk). There is one set for prefills (context) and one for decodes (generation).

    Args:
        match: A match of such a name.
    """
    prefills = int(match["prefills"])
    decodes = int(match["decodes"])
    prefill_tokens = int(match["prefill_tokens"])
    decode_tokens = int(match["decode_tokens"])
    return Requested(
        phase=_determine_phase(prefills, decodes, decode_tokens),
        batch=prefills + decodes,
        new_tokens=prefill_tokens + decode_tokens,
        kv_tokens=int(match["prefill_kv_tokens"]) + int(match["decode_kv_tokens"]),
    )


def _parse_name_with_tokens(match: re.Match[str]) -> Requested:
    """Read what a step of vLLM had to do from the numbers of requests and new tokens.

    The name is `execute_context_1(888)_generation_16(16)`: 1 prefill with 888 tokens,
    and 16 decodes with 16. `match` is a match of such a name.
    """
    prefills = int(match["prefills"])
    decodes = int(match["decodes"])
    prefill_tokens = int(match["prefill_tokens"])
    decode_tokens = int(match["decode_tokens"])
    return Requested(
        phase=_determine_phase(prefills, decodes, decode_tokens),
        batch=prefills + decodes,
        new_tokens=prefill_tokens + decode_tokens,
    )


def _parse_name_with_counts(match: re.Match[str]) -> Requested:
    """Read a step of vLLM with requests only: `execute_new_2_cached_14`.

    The phase is unknown, because requests that go on (`cached`) may still be in their
    prefill.
    """
    requests = int(match["new"]) + int(match["cached"])
    return Requested(phase=ServerPhase.UNKNOWN, batch=requests)


def _parse_sglang_name(match: re.Match[str]) -> Requested:
    """Read a step of SGLang: `step[EXTEND bs=4 toks=8192]`, of 4 requests.

    Without `toks`, new tokens are the sum of `c_sq` and `g_sq` (of prefills and of
    decodes), or else one per request of a decode.
    """
    values = {}
    for key, digits in re.findall(r"([a-z_]+)=(\d+)", match["values"]):
        values[key] = int(digits)

    phase = _FORWARD_MODES.get(match["mode"], ServerPhase.UNKNOWN)
    batch = values.get("bs")
    new_tokens = values.get("toks")
    if new_tokens is None:
        new_tokens = _sum_known_values(values, "c_sq", "g_sq")
    if new_tokens is None and phase is ServerPhase.DECODE:
        new_tokens = batch
    return Requested(
        phase=phase,
        batch=batch,
        new_tokens=new_tokens,
        kv_tokens=_sum_known_values(values, "c_sk", "g_sk"),
    )


def _sum_known_values(values: Mapping[str, int], *keys: str) -> int | None:
    """Add up the values of those keys that exist; None if none of them does.

    E.g. 3 of {"c_sq": 1, "g_sq": 2} for both keys, and 1 for "c_sq" and "x".
    """
    known_values = [values[key] for key in keys if key in values]
    return sum(known_values) if known_values else None


def _parse_atom_name(match: re.Match[str]) -> Requested:
    """Read what a step of ATOM had to do from a name such as `decode[bs=117/128 tok=117
    d=117]`.

    This one is of 117 requests. A `decode` with prefills (`p`) is a mixed step. `match`
    is a match of such a name.
    """
    values = {}
    for key, digits in re.findall(_SPACED_VALUE, match["values"]):
        values[key] = int(digits)

    batch = int(match["batch"])
    new_tokens = values.get("tok")
    prefills = values.get("p", 0)
    if match["phase"] == "prefill":
        phase = ServerPhase.PREFILL
    elif prefills:
        phase = ServerPhase.MIXED
    else:
        phase = _determine_phase(
            prefills=0, decodes=batch, decode_tokens=new_tokens or 0
        )
    return Requested(
        phase=phase, batch=batch, new_tokens=new_tokens, kv_tokens=values.get("sk")
    )


_SPACED_VALUE = r"(?:^| )([a-z]{1,20})=(\d{1,15})(?![^ ])"


def _pattern_of_sums(phase: str) -> str:
    """Return the pattern of the requests of a phase with sums: `32(sq32sk32785...)`."""
    return (
        rf"(?P<{phase}s>\d{{1,15}})\(sq(?P<{phase}_tokens>\d{{1,15}})"
        rf"sk(?P<{phase}_kv_tokens>\d{{1,15}})[a-z0-9]{{0,80}}\)"
    )


def _pattern_of_tokens(phase: str) -> str:
    """Return the pattern of the requests of a phase with their tokens: `16(16)`."""
    return (
        rf"(?P<{phase}s>\d{{1,15}})"
        rf"\((?P<{phase}_tokens>\d{{1,15}})(?:_\d{{1,30}})*\)"
    )


class _Form(NamedTuple):
    """A form of the names of steps."""

    pattern: str  # that matches the whole name
    parse: Callable[[re.Match[str]], Requested]


_FORMS: Final = (
    _Form(
        rf"execute_\d{{1,15}}_context_{_pattern_of_sums('prefill')}"
        rf"_generation_{_pattern_of_sums('decode')}\Z",
        _parse_name_with_sums,
    ),
    _Form(
        rf"execute_context_{_pattern_of_tokens('prefill')}"
        rf"_generation_{_pattern_of_tokens('decode')}\Z",
        _parse_name_with_tokens,
    ),
    _Form(
        r"execute_new_(?P<new>\d{1,15})_cached_(?P<cached>\d{1,15})\Z",
        _parse_name_with_counts,
    ),
    _Form(
        r"step\[(?P<mode>[A-Z_0-9]{1,40})(?P<values>(?: [a-z_]{1,20}=\d{1,15}){0,20})\]\Z",
        _parse_sglang_name,
    ),
    _Form(
        r"(?P<phase>prefill|decode)\[bs=(?P<batch>\d{1,15})(?:/\d{1,15})?"
        r"(?P<values>(?: .{0,300})?)\]\Z",
        _parse_atom_name,
    ),
)


@lru_cache(maxsize=4096)
def parse_step_name(name: str) -> Requested | None:
    """Read what a step had to do from the name of its annotation.

    >>> parse_step_name("step[DECODE bs=16]")
    Requested(phase=<ServerPhase.DECODE: 'decode'>, batch=16, new_tokens=16, kv_tokens=None)

    Returns:
        None if the name has none of the known forms.
    """
    if len(name) > _MAX_NAME_CHARACTERS:
        return None
    for form in _FORMS:
        match = re.match(form.pattern, name)
        if match:
            return form.parse(match)
    return None


def combine_annotations(outer: Requested, inner: Requested) -> Requested:
    """Combine what two nested annotations say about the work of the same step.

    What the inner one says replaces what the outer one says, unless it is None or
    UNKNOWN.
    """
    knows_phase = inner.phase is not ServerPhase.UNKNOWN
    return Requested(
        phase=inner.phase if knows_phase else outer.phase,
        batch=_prefer_inner(inner.batch, outer.batch),
        new_tokens=_prefer_inner(inner.new_tokens, outer.new_tokens),
        kv_tokens=_prefer_inner(inner.kv_tokens, outer.kv_tokens),
    )


def _prefer_inner(inner_value: int | None, outer_value: int | None) -> int | None:
    """Return the value of the inner annotation, or that of the outer one if it is
    None."""
    return outer_value if inner_value is None else inner_value


class ServerSteps(msgspec.Struct, frozen=True, eq=False):
    """The steps of a server, and what each of them had to do."""

    steps: Steps
    # One per step; None if no annotation in it has a known form.
    requested: tuple[Requested | None, ...]


def find_server_steps(trace: Trace) -> ServerSteps:
    """Find the steps of an inference server in a trace, with what each had to compute.

    Servers name an annotation for each step, such as `step[DECODE bs=16]`. Annotations
    inside a step may add further numbers. There are no steps if no annotation has a
    known form.
    """
    steps = steps_of(trace, SERVER)
    requested: list[Requested | None] = [None] * len(steps)
    rows = annotations_with(trace, is_of_server)
    step_of_row = last_at_or_before(steps.start, trace.start[rows])
    for row, step in zip(rows.tolist(), step_of_row.tolist(), strict=True):
        outer = requested[step]
        inner = parse_step_name(trace.name_of(row))
        if outer is not None and inner is not None:
            requested[step] = combine_annotations(outer, inner)
        else:
            requested[step] = outer or inner
    return ServerSteps(steps=steps, requested=tuple(requested))
