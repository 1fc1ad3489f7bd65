"""Parses the parts of C++ names that decoders need.

These are the namespaces, the base name and the template arguments.
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

from fusetui.text.patterns import lazy_pattern

from .record import cut, escaped, spaced
from .vocabulary import CXX_TYPE, cxx_type

Span = tuple[int, int]
"""(start, end) of some characters of a name."""

_ANONYMOUS = r"\(anonymous namespace\)|<unnamed>|\{anonymous\}"
SCOPE = rf"(?:(?:\w+|{_ANONYMOUS})::)*"
"""A pattern for any number of namespaces, for use inside other patterns."""

_ANONYMOUS_SCOPE: Final = "(anonymous namespace)::"
_ANONYMOUS_SCOPES = lazy_pattern(rf"(?:{_ANONYMOUS})::")

_HEAD = lazy_pattern(rf"({SCOPE})(\w+)(<?)")
_BASE = lazy_pattern(rf"{SCOPE}(\w+)")
_RETURN = lazy_pattern(r"(?:void|int|float|bool|auto) +")
_PAIRS = lazy_pattern(r"[<>(),{}]|operator(?:\(\)|[<>=-]+)")
_WORD = lazy_pattern(r"\w{1,40}")
_IDENTIFIER = lazy_pattern(r"(\d{1,4})")
_MAX_LIST_CHARACTERS = 20_000
"""Of a list of template arguments, as far as it is read."""

_MAX_TEXT_CHARACTERS = 400
"""Of a name, as far as `base_text` looks at it."""

_MAX_IDENTIFIERS = 16
"""Of a mangled name, as far as it is read."""

_ELEMENT = lazy_pattern(rf"(?<![\w:])(?:{CXX_TYPE}|float2|double2|__half2)(?![\w:<])")
_MANGLED_ELEMENTS = lazy_pattern(
    r"(?:DF16b|DF16_|Dh|[df]|\d{1,2}(?:__nv_|__hip_|hip_)bfloat16)+"
)
_MANGLED_ELEMENT = lazy_pattern(r"DF16b|DF16_|Dh|[df]|bfloat16")
_MANGLED_TYPES: Final = {
    "DF16b": "bf16",
    "bfloat16": "bf16",
    "DF16_": "fp16",
    "Dh": "fp16",
    "f": "fp32",
    "d": "fp64",
}
"""Codes of element types in mangled names (Itanium C++ ABI, builtin types)."""

_COUNTING_TYPES: Final = ("bool", "int32", "uint32", "int64", "uint64")
"""Types among template arguments that mostly count, index or mask. Narrower integers
are stored elements, also in place of a type that the compiler lacks (fp8, bf16)."""

_STORED_INTEGERS: Final = ("int8", "uint8", "int16", "uint16", None)

_VALUES: Final = ("&", "(bool)", "(int)")
"""How template arguments begin that are functions or numbers: their types are no
element types."""

_VECTOR_TYPES: Final = {
    "float2": "c64",
    "double2": "c128",
    "__half2": "2xfp16",
}
"""Types of two numbers, of which the first ones stand for complex numbers."""

_FLAGS: Final = {
    "true": "y",
    "false": "n",
    "(bool)1": "y",
    "(bool)0": "n",
}
"""How a flag among template arguments is shown."""

_INDEX_TYPES: Final = ("int32", "uint32", "uint64")
"""Types of indices, which nearly every kernel has and which are not shown."""

_MAX_ARGUMENTS: Final = 16
"""Template arguments that `callee_text` looks at."""

_MAX_TYPES_SHOWN: Final = 4

_MAX_NUMBER_CHARACTERS: Final = 7
"""Of a template argument that is shown as a number."""


class Signature(msgspec.Struct, frozen=True):
    """The parts of the name of a C++ function."""

    # The namespaces with their final `::`. An anonymous namespace is written as Kineto
    # writes it, whatever tool wrote the name.
    scope: str
    base: str  # the last word: name[start:end]
    start: int
    end: int
    args: int  # the index just after `<`; -1 without template arguments
    mangled: bool = False


@lru_cache(maxsize=256)
def signature(name: str) -> Signature | None:
    """Read the beginning of the name of a C++ function, after its return type.

    Returns None if the text is no such name.

    >>> signature("void at::native::reduce_kernel<512, 1>(int)").base
    'reduce_kernel'
    """
    if name.startswith("_Z"):
        return _read_mangled_signature(name)

    match = _HEAD.match(name, _skip_return_type(name))
    if match is None:
        return None

    start, end = match.span(2)
    return Signature(
        scope=_ANONYMOUS_SCOPES.sub(_ANONYMOUS_SCOPE, match[1]),
        base=match[2],
        start=start,
        end=end,
        args=match.end() if match[3] else -1,
    )


def _skip_return_type(name: str) -> int:
    """Return the index at which the name of a function begins, after its return type.

    Returns 0 if the name has no return type.
    """
    if name.startswith("std::enable_if<"):
        _, end = split_args(name, len("std::enable_if<"))
        type_end = name.find("::type ", end, end + 20)
        return type_end + len("::type ") if type_end >= 0 else 0

    match = _RETURN.match(name)
    return match.end() if match else 0


def _read_mangled_signature(name: str) -> Signature | None:
    """Read the beginning of a mangled name, as far as it has plain identifiers.

    Each identifier is written as its length followed by its letters:
    `_ZN2at6native...`. Returns None if there is none.
    """
    is_nested = name.startswith("_ZN")
    start = end = len("_ZN") if is_nested else len("_Z")

    # Read one identifier after another.
    # A name that is not nested has a single one.
    identifiers: list[str] = []
    while match := _IDENTIFIER.match(name, end):
        start = match.end()
        end = start + int(match[1])
        identifiers.append(name[start:end])
        if not is_nested or len(identifiers) == _MAX_IDENTIFIERS:
            break

    if not identifiers or end > len(name):
        return None

    *namespaces, base = identifiers
    scope = ""
    for namespace in namespaces:
        if namespace.startswith("_GLOBAL__N_"):
            scope += _ANONYMOUS_SCOPE
        else:
            scope += f"{namespace}::"

    # Template arguments begin with I.
    has_arguments = name.startswith("I", end)
    return Signature(
        scope=scope,
        base=base,
        start=start,
        end=end,
        args=end + 1 if has_arguments else -1,
        mangled=True,
    )


def make_cute_tuple_pattern(*groups: str) -> str:
    """Return a pattern for a shape of CuTe: `cute::tuple<cute::C<128>, ...>`.

    Args:
        groups: The names of the groups of the pattern, one for each size.
    """
    sizes = ", ".join(
        rf"cute::(?:C<(?:\(int\))?|_)(?P<{group}>\d{{1,4}})>?" for group in groups
    )
    return rf"cute::tuple<{sizes} ?>"


def read_base_name(text: str, start: int = 0) -> str | None:
    """Return the last word of the qualified name that begins at one position.

    `at::native::add<int>` gives `add`. Returns None if no name begins there.
    """
    match = _BASE.match(text, start)
    return match[1] if match else None


def split_args(text: str, start: int, limit: int = 64) -> tuple[list[Span], int]:
    """Split a list of template arguments.

    Inside parentheses, angle brackets are comparisons or belong to the types of a
    function, so only parentheses are balanced there.

    Args:
        text: The text that contains the list.
        start: The index just after the `<` of the list.
        limit: At most so many arguments are read.

    Returns:
        The span of each argument, and the index at which reading ended: behind the
        list, unless it has more arguments.

    >>> split_args("f<a, b<c, d> >(x)", 2)
    ([(2, 3), (5, 12)], 14)
    """
    spans: list[Span] = []

    open_brackets = open_parentheses = 0
    end = min(len(text), start + _MAX_LIST_CHARACTERS)
    for match in _PAIRS.finditer(text, start, end):
        char = match[0]

        if char in "({":
            open_parentheses += 1
        elif char in ")}":
            open_parentheses -= 1
        elif open_parentheses:
            continue
        elif char == "<":
            open_brackets += 1
        elif char == ">" and open_brackets:
            open_brackets -= 1
        elif char in (",", ">") and not open_brackets:
            spans.append(_strip_span(text, start, match.start()))
            start = match.end()
            if char == ">" or len(spans) == limit:
                return spans, start

    return spans, start


def _strip_span(text: str, start: int, end: int) -> Span:
    """Return the span of `text[start:end]` without the blanks around it."""
    argument = text[start:end]
    first = end - len(argument.lstrip(" "))
    return first, first + len(argument.strip(" "))


def read_arguments(name: str, sign: Signature, limit: int = 64) -> list[str]:
    """Return the template arguments of a function as texts.

    Args:
        name: The full name.
        sign: The signature of this name.
        limit: At most so many arguments are read.

    Returns:
        The arguments; none for a mangled name.
    """
    if sign.args < 0 or sign.mangled:
        return []
    spans, _ = split_args(name, sign.args, limit)
    return [name[start:end] for start, end in spans]


def is_index_type(dtype: str) -> bool:
    """Return whether a type among template arguments mostly counts, indexes or masks.

    Such a type is not taken for the type of the elements.
    """
    return dtype in _COUNTING_TYPES


def element_type(name: str, sign: Signature) -> str | None:
    """Return the floating-point type that is the only type of elements of a function.

    It is searched for among the template arguments. Integers that may be those of
    indices are ignored. Vectors such as `float2` may be complex numbers; with them
    the type is not known. Returns None if there is no such type, or several.

    >>> name = "void vllm::rms_norm_kernel<c10::BFloat16, long, 8>(int)"
    >>> element_type(name, signature(name))
    'bf16'
    """
    if sign.args < 0:
        return None

    types = set[str | None]()

    # In a mangled name each type is a code of one or a few letters.
    if sign.mangled:
        codes = _MANGLED_ELEMENTS.match(name, sign.args)
        if codes is None:
            return None
        types |= {_MANGLED_TYPES[code] for code in _MANGLED_ELEMENT.findall(codes[0])}
    else:
        for argument in read_arguments(name, sign):
            if argument.startswith(_VALUES):
                continue
            for text in _ELEMENT.findall(argument):
                dtype = cxx_type(text)
                if dtype is None or not is_index_type(dtype):
                    types.add(dtype)

    if len(types) != 1:
        return None

    (only_type,) = types
    return only_type if only_type not in _STORED_INTEGERS else None


def callee_text(name: str, sign: Signature, base: str | None = None) -> str:
    """Compose the short text of a function with a C++ name.

    It has the element types and the numbers among the template arguments. A flag
    is `y` or `n`, and flags that follow one another run together. One type that
    all arguments share is written once. Types of indices are left out.

    Args:
        name: The full name.
        sign: The signature of this name.
        base: What the text begins with; without it the base name of the function.

    >>> name = "void gemv2T_kernel_val<int, float, float, 128, 16, false>(int)"
    >>> callee_text(name, signature(name), "gemv2T")
    'gemv2T fp32 128.16.n'
    """
    types: list[str] = []
    numbers: list[str] = []
    for text in read_arguments(name, sign, _MAX_ARGUMENTS):
        number = text.rstrip("ul").removeprefix("(int)")
        if text in _FLAGS:
            is_after_flag = bool(numbers) and numbers[-1][-1] in "yn"
            if is_after_flag:
                numbers[-1] += _FLAGS[text]
            else:
                numbers.append(_FLAGS[text])
        elif number.lstrip("-").isdigit() and len(number) <= _MAX_NUMBER_CHARACTERS:
            numbers.append(number)
        elif "OpaqueType<" in text:  # ATen copies bytes whatever their type
            size = text.partition("OpaqueType<")[2].rstrip("> u")[:4]
            types.append(f"{size}B")
        else:
            dtype = _VECTOR_TYPES.get(text) or cxx_type(text)
            if dtype is not None and dtype not in _INDEX_TYPES:
                types.append(dtype)

    is_one_type = len(set(types)) == 1
    type_words = types[0] if is_one_type else "*".join(types[:_MAX_TYPES_SHOWN])
    return spaced(sign.base if base is None else base, type_words, ".".join(numbers))


def base_text(name: str) -> str:
    """Return the namespaces and the base name of a function, safe to print and short.

    Template arguments and parameters are left out. Lists show this text for
    kernels of no known family.

    >>> base_text("std::enable_if<true>::type run(int)"), base_text("")
    ('run', '(no name)')
    >>> base_text("gemm_<float, float>_nt_v1"), base_text("\\x1b[b")
    ('gemm_..._nt_v1', '\\\\x1b(b')
    """
    sign = signature(name)
    if sign is None:
        head = name[:_MAX_TEXT_CHARACTERS]
        before_arguments = re.split("[<(]", head, maxsplit=1)[0]
        text = before_arguments.strip() or head.strip()
    else:
        text = _format_qualified_name(name, sign)

    # Letters of any script stay; controls, direction marks and brackets do not.
    safe_characters = []
    for char in text[:_MAX_TEXT_CHARACTERS]:
        is_safe = char.isprintable() and char not in "[]"
        safe_characters.append(char if is_safe else escaped(char))

    return cut("".join(safe_characters), "…") or "(no name)"


def _format_qualified_name(name: str, sign: Signature) -> str:
    """Return the namespaces and the base name of a function.

    Anonymous namespaces are left out. Some libraries write a word right behind the
    template arguments; it follows after `...`.
    """
    text = sign.scope.replace(_ANONYMOUS_SCOPE, "") + sign.base
    if sign.args < 0 or sign.mangled:
        return text

    _, end = split_args(name, sign.args)
    suffix = _WORD.match(name, end)
    return f"{text}...{suffix[0]}" if suffix else text
