"""The record that every decoder returns for the name of a GPU kernel, and its
constructor.

The *parts* of a record say what some characters of the name mean. Names are untrusted:
only plain characters leave this module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from string import ascii_lowercase, digits
from typing import Any, Final, NamedTuple

import msgspec

from fusetui.text.patterns import compiled, lazy_pattern
from fusetui.text.printable import printable

from .vocabulary import MMA_SHAPES, from_capability, get_generation_fields

Part = tuple[int, int, str]
"""(start, end, meaning): the characters name[start:end] and what they mean, in plain
words."""

Meaning = Callable[[str], str | None]
Meanings = Mapping[str, str | Callable[[str], str]]

MAX_SHORT: Final = 48

_UNSAFE = lazy_pattern(r"[^ -Z\\^-~]")
_BRACKETS: Final = {"[": "(", "]": ")"}  # which terminal markup uses

# Names of groups of patterns, by what is made of their texts; see fields_of.
_NUMBER_FIELDS: Final = frozenset(
    {"tile_m", "tile_n", "tile_k", "stages", "align", "head_dim"}
)
_TEXT_FIELDS: Final = frozenset({"cluster", "layout"})
_EPILOGUES: Final = frozenset(
    {"bias", "relu", "gelu", "drelu", "dgelu", "aux", "scalemax", "bgrada", "bgradb"}
)
_MEANINGS: Final = {
    "cc": "built for compute capability {}",
    "tile_m": "output tile of one block: {} rows",
    "tile_n": "output tile of one block: {} columns",
    "tile_k": "each step takes {} of K",
    "stages": "pipeline stages in flight: {}",
    "cluster": "cluster of {} blocks",
    "align": "operands are aligned to {} elements",
}


class DecodedName(
    msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True
):
    """What a kernel name says: the output of `decode --json` for any name.

    A field is None if the name does not determine it. Tiles and `align` count
    elements. `layout` has the BLAS letters of A and B (`t` is read transposed), or
    the tensor layout of a convolution. docs/kernel-names.md lists the words of each
    field.
    """

    name: str
    short: str
    family: str | None  # None: of no known family
    op: str | None = None
    arch: str | None = None
    arch_name: str | None = None
    dtype_a: str | None = None
    dtype_b: str | None = None
    dtype_acc: str | None = None
    dtype_out: str | None = None
    dtype: str | None = None
    math: str | None = None
    tile_m: int | None = None
    tile_n: int | None = None
    tile_k: int | None = None
    stages: int | str | None = None
    layout: str | None = None
    mma: str | None = None
    mma_mn: str | None = None
    align: int | None = None
    cluster: str | None = None
    split_k: bool | int | None = None
    stream_k: bool | None = None
    role: str | None = None
    epilogue: str | None = None
    head_dim: int | None = None
    causal: bool | None = None  # the flag of a full causal mask
    local: bool | None = None  # limited to a window, causal or not
    functor: str | None = None
    vec: int | None = None
    fused_ops: tuple[str, ...] | None = None
    kernel_category: str | None = None
    collective: str | None = None
    redop: str | None = None
    algo: str | None = None
    proto: str | None = None
    direction: str | None = None
    parts: tuple[Part, ...]
    pass_: str | None = msgspec.field(name="pass", default=None)


class KernelName(DecodedName, frozen=True, kw_only=True, gc=False):
    """What a kernel name says that was recognized as one of a known library."""

    family: str


def build(
    name: str, family: str, short: str, parts: Iterable[Part] = (), **fields: Any
) -> KernelName:
    """Build the record of a kernel name from what a decoder found out.

    The parts are sorted, and of two parts that overlap only the one that starts
    first is kept. The short text is made safe to print.

    Args:
        name: The full name of the kernel.
        family: The naming scheme, as docs/kernel-names.md lists them.
        short: A readable text for lists; at most MAX_SHORT characters are kept.
        parts: The explained characters of the name, in any order.
        fields: Any other fields of KernelName.
    """
    separate_parts: list[Part] = []
    end_of_last_part = 0
    for start, end, meaning in sorted(parts):
        is_empty = start >= end
        overlaps_last_part = start < end_of_last_part
        if not is_empty and not overlaps_last_part:
            separate_parts.append((start, end, meaning))
            end_of_last_part = end

    return KernelName(
        name=name,
        short=safe(short),
        family=family,
        parts=tuple(separate_parts),
        **fields,
    )


def fields_of(match: re.Match[str], types: Meaning | None = None) -> dict[str, Any]:
    """Turn the groups of a matched pattern into fields of KernelName.

    Groups are named after fields. Numbers become int. The digits of a tensor-core
    instruction (`mma`) become its shape. A compute capability `cc` or a generation
    `arch` gives both `arch` and `arch_name`. Other groups are ignored.

    >>> fields_of(re.match("sm(?P<cc>[0-9]+)_(?P<tile_m>[0-9]+)", "sm90_128"))
    {'arch': 'sm90', 'arch_name': 'Hopper', 'tile_m': 128}

    Args:
        match: The match of a pattern of one family.
        types: Translates the type words of this family (the groups `dtype_...`) to
            our names; without it they are ignored.
    """
    fields: dict[str, Any] = {}
    for group, text in match.groupdict(default="").items():
        if group in _NUMBER_FIELDS and text:
            fields[group] = int(text)
        elif group in _TEXT_FIELDS:
            fields[group] = text or None
        elif group == "mma":
            fields["mma"] = text if "x" in text else MMA_SHAPES.get(text)
        elif group == "cc":
            fields.update(from_capability(text))
        elif group == "arch":
            fields.update(get_generation_fields(text))
        elif types is not None and group.startswith("dtype_"):
            fields[group] = types(text)

    return fields


def find_epilogue(rest: str) -> str | None:
    """Collect the words that name what a kernel can apply while it stores its result.

    `_lower_bias_relu_v1` gives `bias_relu`. Returns None if there is no such word.

    Args:
        rest: A part of a name in which words are divided by underscores.
    """
    words = rest.split("_")
    epilogue_words = [word for word in words if word in _EPILOGUES]
    return "_".join(epilogue_words) if epilogue_words else None


def explain(
    match: re.Match[str], meanings: Meanings, words: Meaning | None = None
) -> list[Part]:
    """Explain the characters of a name that the groups of a pattern matched.

    Each group that matched characters and has a meaning becomes one part.

    Args:
        match: The match of a pattern of one family.
        meanings: By group, a text in which `{}` stands for the matched characters,
            or a function of them. Meanings of all families are added.
        words: Gives the meaning of a single word, or None. It is asked for each word
            between underscores in the groups `mid` and `rest`.

    >>> explain(re.compile("(?P<tile_m>[0-9]+)x").match("64x"), {"tile_m": "tile of {} rows"})
    [(0, 2, 'tile of 64 rows')]
    """
    parts: list[Part] = []
    for group, text in match.groupdict().items():
        if not text:
            continue
        start, end = match.span(group)
        meaning = meanings.get(group) or _MEANINGS.get(group)
        if isinstance(meaning, str):
            parts.append((start, end, meaning.format(text)))
        elif meaning is not None:
            parts.append((start, end, meaning(text)))
        if words is not None and group in ("mid", "rest"):
            parts += _explain_words(match.string, start, end, words)

    return parts


def explain_group(match: re.Match[str], group: str | int, meaning: str) -> Part:
    """Return the characters that one group of a pattern matched, with their meaning."""
    start, end = match.span(group)
    return start, end, meaning


def _explain_words(name: str, start: int, end: int, words: Meaning) -> list[Part]:
    """Explain the words between underscores in `name[start:end]`.

    Words without a meaning are left out.
    """
    parts = []
    for word in iterate_words(name, start, end):
        meaning = words(word.text)
        if meaning is not None:
            parts.append((word.start, word.end, meaning))

    return parts


def find_first_op(patterns: Mapping[str, str], text: str) -> str | None:
    """Return the key of the first pattern that matches anywhere in a text.

    The keys are operations, such as `softmax`, and the patterns are words that imply
    them. Returns None if no pattern matches.
    """
    for op, pattern in patterns.items():
        if compiled(pattern).search(text):
            return op
    return None


class Word(NamedTuple):
    """A word of a name: the characters name[start:end]."""

    text: str
    start: int
    end: int


def word_of_group(match: re.Match[str], group: str) -> Word:
    """Return the characters that one group of a pattern matched as a word."""
    return Word(match[group], match.start(group), match.end(group))


def iterate_words(name: str, start: int, end: int) -> Iterator[Word]:
    """Yield the words between underscores in `name[start:end]`, without empty ones.

    >>> [word.text for word in iterate_words("gemm_relu__tn", 4, 13)]
    ['relu', 'tn']
    """
    word_start = start
    for text in name[start:end].split("_"):
        word_end = word_start + len(text)
        if text:
            yield Word(text, word_start, word_end)
        word_start = word_end + len("_")


def escaped(char: str) -> str:
    """Write one character as printable ASCII.

    Brackets become parentheses, because terminal markup uses them. Any other
    character is written as an escape sequence.
    """
    if char in _BRACKETS:
        return _BRACKETS[char]
    return char.encode("unicode_escape", "surrogatepass").decode("ascii")


def cut(text: str, mark: str) -> str:
    """Shorten a text to at most MAX_SHORT characters.

    Args:
        text: The text to shorten.
        mark: What ends a text that was cut.
    """
    if len(text) <= MAX_SHORT:
        return text
    kept_characters = MAX_SHORT - len(mark)
    return f"{text[:kept_characters].rstrip()}{mark}"


def safe(text: str) -> str:
    """Make a short printable text of a text of any origin.

    The result is printable ASCII without square brackets, at most MAX_SHORT
    characters.

    >>> safe("a\\x1b[31mb")
    'a\\\\x1b(31mb'
    """
    beginning = text[: 2 * MAX_SHORT]  # more than is kept
    is_plain = beginning.isascii() and beginning.isprintable()
    has_brackets = "[" in beginning or "]" in beginning
    if is_plain and not has_brackets:
        return cut(beginning, "...")

    safe_text = _UNSAFE.sub(lambda match: escaped(match[0]), beginning)
    return cut(safe_text, "...")


def spaced(*words: str | int | None) -> str:
    """Join words with blanks and leave out None, 0 and "".

    >>> spaced("gemm", None, "bf16")
    'gemm bf16'
    """
    return " ".join([str(word) for word in words if word])


def gemm_label(op: str, fields: Mapping[str, Any], *last_words: str | None) -> str:
    """Compose the short text of a matrix multiplication or a convolution.

    It shows the types, the tile, the layout, the target and the epilogue, as far as
    they are known.

    Args:
        op: The first word, such as `gemm`.
        fields: The fields of the kernel, as KernelName has them.
        last_words: Words that follow; None and "" are left out.

    >>> gemm_label("gemm", {"dtype_a": "bf16", "tile_m": 128, "tile_n": 64, "layout": "tn"})
    'gemm bf16 128x64 tn'
    """
    types = _format_product_types(
        fields.get("dtype_a"),
        fields.get("dtype_b"),
        acc=fields.get("dtype_acc"),
        out=fields.get("dtype_out"),
    )
    tile = tile_words(fields.get("tile_m"), fields.get("tile_n"), fields.get("tile_k"))
    math = fields.get("math")
    stages = fields.get("stages")
    generation = fields.get("arch_name") or ""
    return spaced(
        op,
        types,
        f"({math})" if math else None,
        tile,
        fields.get("layout"),
        fields.get("arch") or generation.lower(),
        fields.get("epilogue"),
        f"s{stages}" if stages else None,
        *last_words,
    )


def _format_product_types(
    a: str | None, b: str | None, *, acc: str | None, out: str | None
) -> str | None:
    """Write the types of a matrix product as one text: `bf16`, or `bf16->fp32`.

    If the type of A is not known, the type of the sums stands in for it. Where the
    result has another type than the sums, only the result is shown: `->bf16`.

    >>> _format_product_types(None, None, acc="fp32", out="bf16")
    '->bf16'
    >>> _format_product_types(None, None, acc="fp32", out=None)
    'fp32'

    Args:
        a: The type of A.
        b: The type of B.
        acc: The type of the sums.
        out: The type of the result.
    """
    if a is not None:
        return dtype_words(a, b, out)
    if out is not None and out != acc:
        return f"->{out}"
    return dtype_words(acc, b, out)


def dtype_words(a: str | None, b: str | None, out: str | None) -> str | None:
    """Write the types of an operation as one text.

    The text is `bf16`, `bf16*fp8` for two different operands, and `bf16->fp32` if the
    result has another type than the first operand.

    >>> dtype_words("bf16", "fp8", None), dtype_words("bf16", "bf16", "fp32")
    ('bf16*fp8', 'bf16->fp32')

    Args:
        a: The type of the first operand; None if it is not known.
        b: The type of the second operand; None if there is none.
        out: The type of the result; None if it is not known.

    Returns:
        The text; None if neither `a` nor `out` is known.
    """
    if a is None:
        return out
    operands = a if b is None or b == a else f"{a}*{b}"
    if out is None or out == a:
        return operands
    return f"{operands}->{out}"


def tile_words(*sizes: int | None) -> str | None:
    """Write the sizes of a tile as `128x64x32` or `128x64`.

    Unknown sizes are left out. Returns None if no size is known.

    >>> tile_words(128, 64, None)
    '128x64'
    """
    return "x".join([str(size) for size in sizes if size]) or None


UNDERLINE = ("└", "─", "┘")
# What marks each part: one character each, so that the shortest part can be marked.
SIGNS = digits[1:] + ascii_lowercase


class Annotated(msgspec.Struct, frozen=True):
    """A kernel name with the meaning of its parts, ready to print."""

    lines: tuple[tuple[str, str], ...]  # each the text and the marks below it
    legend: tuple[str, ...]  # the sign of each part and its meaning


def annotate(
    name: str, parts: Sequence[Part], width: int, ends: Sequence[str]
) -> Annotated:
    """Wrap a kernel name and underline each explained part of it.

    `fusetui decode` prints the result.

    Args:
        name: The full name of the kernel; it may be empty.
        parts: The explained characters, sorted and without overlaps.
        width: At most so many characters are in a line.
        ends: The left end, the middle and the right end of an underline, one
            character each.

    Returns:
        The lines, at least one, and the legend.
    """
    signs = _choose_signs(len(parts))
    mark_of_character = [" "] * len(name)
    legend = []
    for sign, (start, end, meaning) in zip(signs, parts, strict=True):
        mark_of_character[start:end] = _draw_underline(sign, end - start, ends)
        legend.append(f"{sign} {meaning}")

    # A character that cannot be printed is written as several ones, such as `\x1b`.
    # Its mark is repeated, so that the marks stay below their characters.
    shown_name = ""
    underlines = ""
    for character, mark in zip(name, mark_of_character, strict=True):
        shown_character = printable(character)
        shown_name += shown_character
        underlines += mark * len(shown_character)

    lines = []
    for line_start in range(0, max(1, len(shown_name)), width):  # a name may be empty
        line_end = line_start + width
        line_marks = underlines[line_start:line_end]
        lines.append((shown_name[line_start:line_end], line_marks.rstrip()))

    return Annotated(lines=tuple(lines), legend=tuple(legend))


def _choose_signs(count: int) -> Sequence[str]:
    """Return one sign for each of several parts.

    Signs are single characters, or numbers if there are more parts than SIGNS.

    Args:
        count: How many parts there are.
    """
    if count <= len(SIGNS):
        return SIGNS[:count]
    return [str(number) for number in range(1, count + 1)]


def _draw_underline(sign: str, width: int, ends: Sequence[str]) -> list[str]:
    """Return the characters of the underline of one part, such as `└─3─┘`.

    If that does not fit, it is the sign alone, filled up or cut to the width.

    >>> "".join(_draw_underline("3", 5, UNDERLINE))
    '└─3─┘'

    Args:
        sign: What marks the part.
        width: How many characters the part has.
        ends: The left end, the middle and the right end of an underline.
    """
    left, middle, right = ends
    has_room_for_ends = width >= len(sign) + 2
    if not has_room_for_ends:
        return list(sign[:width].ljust(width, middle))
    return [left, *sign.center(width - 2, middle), right]
