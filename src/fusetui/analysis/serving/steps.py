"""The steps of a server, and what each was asked to do.

Known forms of their names:

* vLLM, `gpu_worker.py`: `execute_new_2_cached_14`, requests that begin and that go on;
* vLLM: `execute_context_1(888)_generation_16(16)`, requests and new tokens of prefill and decode; a
  second number, as in `(888_788544)`, is the sum of squares of the tokens;
* vLLM and SGLang: `execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785...)`, sums
  over the requests: sq of new tokens, sk of all tokens that attention reads;
* SGLang, `model_runner.py`: `step[DECODE bs=16]`, `step[EXTEND bs=4 toks=8192]`; bs counts
  requests, and `g_sq`, `g_sk`, `c_sq` and `c_sk` are sums as above, of decode and of prefill;
* ATOM: `prefill[bs=2 tok=14721 ctx=[7803, 6918]]`, `decode[bs=117/128 tok=117 d=117]`, requests and
  the requests that the graph is for, new tokens, and of a mixed step p prefills; sk as above.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache

import msgspec
import numpy as np

from fusetui.trace.layout.steps import SERVER, Steps, annotations_with, is_of_server, steps_of
from fusetui.trace.model.columns import Trace

LONGEST = 400  # characters of a name that are read
MOST = 10**12  # a larger count is not one
NUMBER = r"(\d{1,15})"
_SUMS = rf"{NUMBER}\(sq{NUMBER}sk{NUMBER}[a-z0-9]{{0,80}}\)"
_SUMMED = re.compile(rf"execute_{NUMBER}_context_{_SUMS}_generation_{_SUMS}\Z")
_PLAIN = re.compile(
    rf"execute_context_{NUMBER}\({NUMBER}(?:_\d{{1,30}})*\)"
    rf"_generation_{NUMBER}\({NUMBER}(?:_\d{{1,30}})*\)\Z"
)
_COUNTED = re.compile(rf"execute_new_{NUMBER}_cached_{NUMBER}\Z")
_STEP = re.compile(r"step\[([A-Z_0-9]{1,40})((?: [a-z_]{1,20}=\d{1,15}){0,20})\]\Z")
_PAIR = re.compile(r"([a-z_]+)=(\d+)")
_ATOM = re.compile(rf"(prefill|decode)\[bs={NUMBER}(?:/{NUMBER})?((?: .{{0,300}})?)\]\Z")
_SPACED = re.compile(rf"(?:^| )([a-z]{{1,20}})={NUMBER}(?![^ ])")


class Phase(StrEnum):
    """What a step does."""

    DECODE = "decode"
    PREFILL = "prefill"
    MIXED = "mixed"
    DRAFT = "draft"  # of speculative decoding: proposes tokens
    VERIFY = "verify"  # of speculative decoding: checks them
    IDLE = "idle"
    UNKNOWN = "unknown"


MODES = {
    "DECODE": Phase.DECODE,
    "EXTEND": Phase.PREFILL,
    "SPLIT_PREFILL": Phase.PREFILL,
    "MIXED": Phase.MIXED,
    "TARGET_VERIFY": Phase.VERIFY,
    "DRAFT_EXTEND": Phase.DRAFT,
    "DRAFT_EXTEND_V2": Phase.DRAFT,
    "IDLE": Phase.IDLE,
}
"""SGLang's ForwardMode."""


class Asked(msgspec.Struct, frozen=True):
    """The requests of a step; None where the annotation does not say."""

    phase: Phase
    batch: int | None = None  # requests
    new_tokens: int | None = None
    kv_tokens: int | None = None  # tokens whose keys and values attention reads, over all requests

    @property
    def cached_tokens(self) -> int | None:
        """Tokens that attention reads and that earlier steps computed."""
        if self.kv_tokens is None or self.new_tokens is None:
            return None
        return max(self.kv_tokens - self.new_tokens, 0)


@lru_cache(maxsize=4096)
def asked_by(name: str) -> Asked | None:
    """What the annotation of this name says; None if it is not one of a server's step.

    >>> asked_by("step[DECODE bs=16]")
    Asked(phase=<Phase.DECODE: 'decode'>, batch=16, new_tokens=16, kv_tokens=None)
    """
    if len(name) > LONGEST:
        return None
    for read in (_summed, _plain, _counted, _step, _atom):
        if (found := read(name)) is not None:
            return found
    return None


def merged(outer: Asked, inner: Asked) -> Asked:
    """What two annotations around the same work say together; the inner one knows the phase."""
    return Asked(
        phase=outer.phase if inner.phase is Phase.UNKNOWN else inner.phase,
        batch=outer.batch if inner.batch is None else inner.batch,
        new_tokens=outer.new_tokens if inner.new_tokens is None else inner.new_tokens,
        kv_tokens=outer.kv_tokens if inner.kv_tokens is None else inner.kv_tokens,
    )


def _summed(name: str) -> Asked | None:
    found = _SUMMED.match(name)
    if found is None:
        return None
    _, prefills, prefill_q, prefill_k, decodes, decode_q, decode_k = map(int, found.groups())
    return Asked(
        phase=_phase(prefills, decodes, decode_q),
        batch=prefills + decodes,
        new_tokens=prefill_q + decode_q,
        kv_tokens=prefill_k + decode_k,
    )


def _plain(name: str) -> Asked | None:
    found = _PLAIN.match(name)
    if found is None:
        return None
    prefills, prefill_tokens, decodes, decode_tokens = map(int, found.groups())
    phase = _phase(prefills, decodes, decode_tokens)
    return Asked(phase, prefills + decodes, prefill_tokens + decode_tokens)


def _counted(name: str) -> Asked | None:
    """Requests that go on may still be in their prefill."""
    found = _COUNTED.match(name)
    return None if found is None else Asked(Phase.UNKNOWN, int(found[1]) + int(found[2]))


def _step(name: str) -> Asked | None:
    found = _STEP.match(name)
    if found is None:
        return None
    phase = MODES.get(found[1], Phase.UNKNOWN)
    values = {key: int(value) for key, value in _PAIR.findall(found[2])}
    batch = values.get("bs")
    new = [values[key] for key in ("c_sq", "g_sq") if key in values]
    tokens = values.get("toks", sum(new) if new else batch if phase is Phase.DECODE else None)
    sums = [values[key] for key in ("c_sk", "g_sk") if key in values]
    return Asked(phase, batch, tokens, sum(sums) if sums else None)


def _atom(name: str) -> Asked | None:
    found = _ATOM.match(name)
    if found is None:
        return None
    values = {key: int(value) for key, value in _SPACED.findall(found[4])}
    batch, tokens, prefills = int(found[2]), values.get("tok"), values.get("p", 0)
    if found[1] == "prefill":
        phase = Phase.PREFILL
    else:
        phase = Phase.MIXED if prefills else _phase(0, batch, tokens or 0)
    return Asked(phase, batch, tokens, values.get("sk"))


def _phase(prefills: int, decodes: int, tokens: int) -> Phase:
    """`tokens`: of the decodes; more than one of a request are drafts that are verified."""
    if prefills and decodes:
        return Phase.MIXED
    if prefills:
        return Phase.PREFILL
    if decodes:
        return Phase.VERIFY if tokens > decodes else Phase.DECODE
    return Phase.IDLE


class ServerSteps(msgspec.Struct, frozen=True, eq=False):
    """The steps of a server, and what each was asked to do; shape [steps]."""

    steps: Steps
    asked: tuple[Asked | None, ...]  # None: the annotation has a form that is not known

    def __len__(self) -> int:
        return len(self.steps)


def server_steps(trace: Trace) -> ServerSteps:
    """The steps of the server; none if no annotation has the name of one. The annotations inside
    them add to what is known."""
    steps = steps_of(trace, SERVER)
    asked: list[Asked | None] = [None] * len(steps)
    rows = annotations_with(trace, is_of_server)
    number = np.searchsorted(steps.start, trace.start[rows], side="right") - 1
    for row, step in zip(rows.tolist(), number.tolist(), strict=True):
        inner, before = asked_by(trace.name_of(row)), asked[step]
        asked[step] = merged(before, inner) if before and inner else before or inner
    return ServerSteps(steps, tuple(asked))
