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
from typing import Final, NamedTuple

import msgspec

from fusetui.text.patterns import lazy_pattern

from .record import Part, cut, escaped, spaced
from .vocabulary import CXX_TYPE, cxx_type

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
_IDENTIFIER_LENGTH = lazy_pattern(r"\d{1,4}")
_NO_ARGUMENTS: Final = -1
"""The value of Signature.args for a name without template arguments."""

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

    @property
    def has_arguments(self) -> bool:
        """Whether the function has template arguments."""
        return self.args != _NO_ARGUMENTS

    def explain_base(self, meaning: str) -> Part:
        """Return the part of the name that is the base name, with its meaning."""
        return self.start, self.end, meaning


class TemplateArgument(NamedTuple):
    """One template argument of a name: the characters name[start:end]."""

    text: str
    start: int
    end: int


class ArgumentList(NamedTuple):
    """Template arguments that were read from a name."""

    arguments: list[TemplateArgument]
    end: int  # the index at which reading ended: behind the list, unless it has more


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
        args=match.end() if match[3] else _NO_ARGUMENTS,
    )


def _skip_return_type(name: str) -> int:
    """Return the index at which the name of a function begins, after its return type.

    Returns 0 if the name has no return type.
    """
    if name.startswith("std::enable_if<"):
        list_end = split_args(name, len("std::enable_if<")).end
        type_word = "::type "
        type_start = name.find(type_word, list_end, list_end + 20)
        is_found = type_start >= 0
        return type_start + len(type_word) if is_found else 0

    return_type = _RETURN.match(name)
    return return_type.end() if return_type else 0


def _read_mangled_signature(name: str) -> Signature | None:
    """Read the beginning of a mangled name, as far as it has plain identifiers.

    Each identifier is written as its length followed by its letters:
    `_ZN2at6native...`. Returns None if there is none.
    """
    is_nested = name.startswith("_ZN")
    max_identifiers = _MAX_IDENTIFIERS if is_nested else 1

    identifiers: list[str] = []
    start = 0  # of the identifier that was read last
    end = len("_ZN") if is_nested else len("_Z")
    while len(identifiers) < max_identifiers:
        length = _IDENTIFIER_LENGTH.match(name, end)
        if length is None:
            break
        start = length.end()
        end = start + int(length[0])
        identifiers.append(name[start:end])

    if not identifiers or end > len(name):
        return None

    *namespaces, base = identifiers
    scope = ""
    for namespace in namespaces:
        is_anonymous = namespace.startswith("_GLOBAL__N_")
        scope += _ANONYMOUS_SCOPE if is_anonymous else f"{namespace}::"

    has_arguments = name.startswith("I", end)  # which opens their list
    return Signature(
        scope=scope,
        base=base,
        start=start,
        end=end,
        args=end + 1 if has_arguments else _NO_ARGUMENTS,
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


def split_args(text: str, start: int, limit: int = 64) -> ArgumentList:
    """Split a list of template arguments.

    Inside parentheses, angle brackets are comparisons or belong to the types of a
    function, so only parentheses are balanced there.

    Args:
        text: The text that contains the list.
        start: The index just after the `<` of the list.
        limit: At most so many arguments are read.

    >>> [argument.text for argument in split_args("f<a, b<c, d> >(x)", 2).arguments]
    ['a', 'b<c, d>']
    """
    arguments: list[TemplateArgument] = []
    argument_start = start
    open_brackets = 0
    open_parentheses = 0
    search_end = min(len(text), start + _MAX_LIST_CHARACTERS)
    for match in _PAIRS.finditer(text, start, search_end):
        token = match[0]
        if token in "({":
            open_parentheses += 1
        elif token in ")}":
            open_parentheses -= 1
        elif open_parentheses != 0:
            continue
        elif token == "<":
            open_brackets += 1
        elif token == ">" and open_brackets > 0:
            open_brackets -= 1
        elif token in (",", ">") and open_brackets == 0:
            arguments.append(_cut_argument(text, argument_start, match.start()))
            argument_start = match.end()
            if token == ">" or len(arguments) == limit:
                break

    return ArgumentList(arguments, end=argument_start)


def _cut_argument(text: str, start: int, end: int) -> TemplateArgument:
    """Return `text[start:end]` as an argument, without the blanks around it."""
    without_blanks_before = text[start:end].lstrip(" ")
    argument = without_blanks_before.rstrip(" ")
    argument_start = end - len(without_blanks_before)
    return TemplateArgument(
        text=argument,
        start=argument_start,
        end=argument_start + len(argument),
    )


def read_arguments(name: str, sign: Signature, limit: int = 64) -> list[str]:
    """Return the template arguments of a function as texts.

    Args:
        name: The full name.
        sign: The signature of this name.
        limit: At most so many arguments are read.

    Returns:
        The arguments; none for a mangled name.
    """
    if sign.mangled or not sign.has_arguments:
        return []
    arguments = split_args(name, sign.args, limit).arguments
    return [argument.text for argument in arguments]


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
    if not sign.has_arguments:
        return None

    if sign.mangled:
        types = _find_mangled_element_types(name, sign.args)
    else:
        types = _find_element_types(read_arguments(name, sign))
    if len(types) != 1:
        return None
    only_type = types.pop()
    return None if only_type in _STORED_INTEGERS else only_type


def _find_mangled_element_types(name: str, start: int) -> set[str | None]:
    """Collect the element types at the beginning of mangled template arguments.

    Each type is a code of one or a few letters: `DF16bf` is bf16 and fp32.

    Args:
        name: The full name.
        start: The index at which the arguments begin.
    """
    codes = _MANGLED_ELEMENTS.match(name, start)
    if codes is None:
        return set()
    return {_MANGLED_TYPES[code] for code in _MANGLED_ELEMENT.findall(codes[0])}


def _find_element_types(arguments: list[str]) -> set[str | None]:
    """Collect the element types in template arguments, without those of indices.

    None stands for a type that may be one of complex numbers.
    """
    types = set[str | None]()
    for argument in arguments:
        if argument.startswith(_VALUES):
            continue
        for cxx_name in _ELEMENT.findall(argument):
            dtype = cxx_type(cxx_name)
            if dtype is None or not is_index_type(dtype):
                types.add(dtype)
    return types


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
    values: list[str] = []
    for argument in read_arguments(name, sign, _MAX_ARGUMENTS):
        value = _format_value(argument)
        if value is not None:
            values.append(value)
            continue
        dtype = _format_type(argument)
        if dtype is not None:
            types.append(dtype)

    has_one_type = len(set(types)) == 1
    type_text = types[0] if has_one_type else "*".join(types[:_MAX_TYPES_SHOWN])
    first_word = sign.base if base is None else base
    return spaced(first_word, type_text, _join_values(values))


def _format_value(argument: str) -> str | None:
    """Return how a number or a flag among template arguments is shown.

    Returns None for an argument that is neither, and for a very long number.

    >>> _format_value("(int)128"), _format_value("true"), _format_value("float")
    ('128', 'y', None)
    """
    if argument in _FLAGS:
        return _FLAGS[argument]
    number = argument.rstrip("ul").removeprefix("(int)")
    is_number = number.lstrip("-").isdigit()
    return number if is_number and len(number) <= _MAX_NUMBER_CHARACTERS else None


def _format_type(argument: str) -> str | None:
    """Return how an element type among template arguments is shown.

    Returns None for an argument that is no element type, and for a type of indices.

    >>> _format_type("float"), _format_type("at::native::OpaqueType<4>")
    ('fp32', '4B')
    """
    _, opaque, size = argument.partition("OpaqueType<")
    if opaque:  # ATen copies bytes whatever their type
        return f"{size.rstrip('> u')[:4]}B"
    dtype = _VECTOR_TYPES.get(argument) or cxx_type(argument)
    return None if dtype in _INDEX_TYPES else dtype


def _join_values(values: list[str]) -> str:
    """Join numbers and flags by points; flags that follow one another run together.

    >>> _join_values(["128", "y", "n", "16"])
    '128.yn.16'
    """
    joined = ""
    for value in values:
        continues_flags = value in ("y", "n") and joined.endswith(("y", "n"))
        separator = "" if continues_flags or not joined else "."
        joined += separator + value
    return joined


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
        before_arguments, *_ = re.split("[<(]", head, maxsplit=1)
        text = before_arguments.strip() or head.strip()
    else:
        text = _format_qualified_name(name, sign)

    # Letters of any script stay; controls, direction marks and brackets do not.
    safe_text = ""
    for char in text[:_MAX_TEXT_CHARACTERS]:
        is_safe = char.isprintable() and char not in "[]"
        safe_text += char if is_safe else escaped(char)
    return cut(safe_text, "…") or "(no name)"


def _format_qualified_name(name: str, sign: Signature) -> str:
    """Return the namespaces and the base name of a function.

    Anonymous namespaces are left out. Some libraries write a word right behind the
    template arguments; it follows after `...`.
    """
    named_scopes = sign.scope.replace(_ANONYMOUS_SCOPE, "")
    qualified_name = f"{named_scopes}{sign.base}"
    if sign.mangled or not sign.has_arguments:
        return qualified_name

    list_end = split_args(name, sign.args).end
    word_behind = _WORD.match(name, list_end)
    return f"{qualified_name}...{word_behind[0]}" if word_behind else qualified_name
