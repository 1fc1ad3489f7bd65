"""Reading C++ names just far enough: the scope, the base name and the template
arguments.

Demangled names come as Kineto writes them (`(anonymous namespace)`, `4`) and as nsys
does (`<unnamed>`, `(int)4`). Of mangled names (Itanium C++ ABI, `_ZN...`) only the
leading identifiers are read: Kineto leaves a name mangled when its demangler gives up
(libkineto/src/Demangle.cpp).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

import msgspec

from fusetui.text.patterns import late

from .record import cut, escaped, spaced
from .vocabulary import cxx_type

Span = tuple[int, int]

_ANONYMOUS = r"\(anonymous namespace\)|<unnamed>|\{anonymous\}"
# any number of namespaces, for use inside other patterns
SCOPE = rf"(?:(?:\w+|{_ANONYMOUS})::)*"

_HEAD = late(rf"({SCOPE})(\w+)(<?)")
_BASE = late(rf"{SCOPE}(\w+)")
_RETURN = late(r"(?:void|int|float|bool|auto) +")
_PAIRS = late(r"[<>(),{}]|operator(?:\(\)|[<>=-]+)")
_WORD = late(r"\w{1,40}")
_IDENTIFIER = late(r"(\d{1,4})")
_PREFIX_LIMIT = 20_000
_LONGEST = 400
_COMPLEX: Final = {"float2": "c64", "double2": "c128", "__half2": "2xfp16"}
_FLAGS: Final = {"true": "y", "false": "n", "(bool)1": "y", "(bool)0": "n"}
_INDICES: Final = ("int32", "uint32", "uint64")  # which nearly every kernel has
_MAX_ARGUMENTS: Final = 16


class Signature(msgspec.Struct, frozen=True):
    """Where the parts of a function name are; `args` is just after `<`, or -1 without
    arguments."""

    scope: str
    base: str
    start: int
    end: int
    args: int
    mangled: bool = False


@lru_cache(maxsize=256)
def signature(name: str) -> Signature | None:
    """The head of a C++ function name, after a return type.

    >>> signature("void at::native::reduce_kernel<512, 1>(int)").base
    'reduce_kernel'
    """
    if name.startswith("_Z"):
        return _mangled(name)
    if (match := _HEAD.match(name, _skip_return(name))) is None:
        return None
    args = match.end() if match[3] else -1
    return Signature(match[1], match[2], *match.span(2), args)


def _skip_return(name: str) -> int:
    if name.startswith("std::enable_if<"):
        _, end = split_args(name, len("std::enable_if<"))
        type_end = name.find("::type ", end, end + 20)
        return type_end + len("::type ") if type_end >= 0 else 0
    match = _RETURN.match(name)
    return match.end() if match else 0


def _mangled(name: str) -> Signature | None:
    """Identifiers are written as their length followed by their letters:
    `_ZN2at6native...`."""
    at = 3 if name.startswith("_ZN") else 2
    words: list[str] = []
    start = at
    while match := _IDENTIFIER.match(name, at):
        start, at = match.end(), match.end() + int(match[1])
        words.append(name[start:at])
        if name[2] != "N" or len(words) == 16:
            break
    if not words or at > len(name):
        return None
    scopes = [
        "(anonymous namespace)" if w.startswith("_GLOBAL__N_") else w
        for w in words[:-1]
    ]
    args = at + 1 if name[at : at + 1] == "I" else -1
    return Signature(
        "".join(f"{w}::" for w in scopes), words[-1], start, at, args, mangled=True
    )


def cute_tuple(*groups: str) -> str:
    """A pattern for a CuTe shape, one group for each size: `cute::tuple<cute::C<128>,
    ...>`."""
    items = ", ".join(
        rf"cute::(?:C<(?:\(int\))?|_)(?P<{group}>\d{{1,4}})>?" for group in groups
    )
    return rf"cute::tuple<{items} ?>"


def base_of(text: str, start: int = 0) -> str | None:
    """The last word of a qualified name at `start`: `at::native::add<int>` gives
    `add`."""
    match = _BASE.match(text, start)
    return match[1] if match else None


def split_args(text: str, start: int, limit: int = 64) -> tuple[list[Span], int]:
    """The spans of the template arguments that begin at `start` and where the list
    ends.

    Reads at most `limit` arguments; angle brackets inside parentheses are comparisons
    or belong to the types of a function, so only parentheses are balanced there.

    >>> split_args("f<a, b<c, d> >(x)", 2)
    ([(2, 3), (5, 12)], 14)
    """
    spans: list[Span] = []
    angle = paren = 0
    for match in _PAIRS.finditer(text, start, min(len(text), start + _PREFIX_LIMIT)):
        char = match[0]
        if char in "({":
            paren += 1
        elif char in ")}":
            paren -= 1
        elif paren:
            continue
        elif char == "<":
            angle += 1
        elif (char == "," and not angle) or (char == ">" and not angle):
            piece = text[start : match.start()]
            first = match.start() - len(piece.lstrip(" "))
            spans.append((first, first + len(piece.strip(" "))))
            start = match.end()
            if char == ">" or len(spans) == limit:
                return spans, start
        elif char == ">":
            angle -= 1
    return spans, start


def argument_texts(name: str, sign: Signature, limit: int = 64) -> list[str]:
    """The template arguments of a function, at most `limit`; none of a mangled one."""
    if sign.args < 0 or sign.mangled:
        return []
    return [name[slice(*span)] for span in split_args(name, sign.args, limit)[0]]


def callee_text(name: str, sign: Signature, base: str | None = None) -> str:
    """Base name, element types, then numbers and flags (y, n) of the template argument
    list.

    >>> name = "void gemv2T_kernel_val<int, float, float, 128, 16, false>(int)"
    >>> callee_text(name, signature(name), "gemv2T")
    'gemv2T fp32 128.16.n'
    """
    types: list[str] = []
    numbers: list[str] = []
    for text in argument_texts(name, sign, _MAX_ARGUMENTS):
        bare = text.rstrip("ul").removeprefix("(int)")
        if text in _FLAGS:
            after_flag = bool(numbers) and numbers[-1][-1] in "yn"
            numbers.append((numbers.pop() if after_flag else "") + _FLAGS[text])
        elif bare.lstrip("-").isdigit() and len(bare) < 8:
            numbers.append(bare)
        elif "OpaqueType<" in text:
            types.append(text.partition("OpaqueType<")[2].rstrip("> u")[:4] + "B")
        elif (dtype := _COMPLEX.get(text) or cxx_type(text)) not in (None, *_INDICES):
            types.append(str(dtype))
    shown = types[0] if len(set(types)) == 1 else "*".join(types[:4])
    return spaced(sign.base if base is None else base, shown, ".".join(numbers))


def base_text(name: str) -> str:
    """Scope and base name without template arguments and parameters, safe and short.

    >>> base_text("std::enable_if<true>::type run(int)"), base_text("")
    ('run', '(no name)')
    >>> base_text("gemm_<float, float>_nt_v1"), base_text("\\x1b[b")
    ('gemm_..._nt_v1', '\\\\x1b(b')
    """
    sign, head = signature(name), name[:_LONGEST]
    if sign is not None:
        scope = sign.scope.replace("(anonymous namespace)::", "").replace(
            "<unnamed>::", ""
        )
        text = scope + sign.base
        # what some write after template arguments
        if sign.args >= 0 and not sign.mangled:
            after = _WORD.match(name, split_args(name, sign.args)[1])
            text += f"...{after[0]}" if after else ""
    else:
        text = re.split("[<(]", head, maxsplit=1)[0].strip() or head.strip()
    # Letters of any script stay; controls, direction marks and brackets do not.
    plain = (
        c if c.isprintable() and c not in "[]" else escaped(c) for c in text[:_LONGEST]
    )
    return cut("".join(plain), "…") or "(no name)"
