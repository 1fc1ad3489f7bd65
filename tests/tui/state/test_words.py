"""Every word and sign that the app shows is explained in the help."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from msgspec.structs import asdict
from tests.sources import nodes, python_files

from fusetui.analysis.diff.model import RowKind
from fusetui.analysis.why.model import IDLE
from fusetui.gpu.kernel_names import decode
from fusetui.gpu.kinds import KINDS
from fusetui.report import diff_lines
from fusetui.tui.drawing.details import LAUNCH_ARGS, MEANING_OF_ARG
from fusetui.tui.drawing.memory import MEANING_OF_HOLDER
from fusetui.tui.drawing.schemes import ASCII, UNICODE, spell_sign
from fusetui.tui.drawing.timeline import ACTIVE
from fusetui.tui.layout.kernel_table import IN_LEGEND, SORTS
from fusetui.tui.layout.kinds import SliceKind
from fusetui.tui.pages.ranks import COLUMNS as RANK_COLUMNS
from fusetui.tui.registry import BY_NAME
from fusetui.tui.state.words import (
    EVERYWHERE,
    LIBRARIES,
    divide_words,
    find_meaning,
    read_screen_words,
)

DECODERS = "src/fusetui/gpu/kernel_names"
NOT_IN_THE_TABLE = {"kernels", "triton", "unknown"}  # only the search has them
WITHOUT_MEANING = {"rule", "letters"}  # a line between panes; no character
WORDS_OF_CLOSING_LINES = ("boundary", "earlier", "later", "overlap", "odd")
WORDS_OF_NEWCOMERS = (
    *("offset by", "x25", "region", diff_lines.NOISE, "noise", "inconclusive"),
    *(
        "note",
        "bound",
        "est. gain",
        "gain/step",
        "data-sheet rates",
        "launching thread",
    ),
    *("kernels whose work is known", "reconstructed", "looks like a secret"),
    *("ogs", "1C11", "4.64.64", "512x1.4", "x4", "s5"),
    *("span", "GPU 0 queue 25", "annotations 7", "folded", "Activity Buffer Request"),
    *("GPU 0 allocated", "GPU 0 reserved", "CPU allocated", "clocks differ"),
    *("idle for an unknown reason", "idle waiting for launches"),
    *("idle with work already queued", "CPU (lines A and B)"),
    *("tiles", "waves", "the last 11 % full", "of peak bandwidth"),
    "the last wave leaves 30 % of the SMs' time unused",
    *("grid", "block (arg)", "registers per thread", "shared memory", "kind (arg)"),
    *("In msg nelems", "Out msg nelems", "In split size", "Out split size"),
    *("Group size", "Process Group Description", "est. achieved occupancy %"),
    *("c64", "mxfp4_e2m1", "xregs", "large", "gen", "optimized", "NNT", "cute"),
    *("cunn_SoftMaxForward bf16 8", "vectorized_gather int64 16"),
    *("Rmsnorm2dFwd", "1024.5.5.3.3.3.1"),
    *("bus bandwidth", "contention", "communication hidden behind compute"),
    *("typical launch latency", "nothing (est. gain)"),
    f"{UNICODE.levels.strip()} in the list of hits",
)


def explained_words() -> set[str]:
    """All words and signs that the help explains; one of its lines may have several."""
    words = set()
    for listed in read_screen_words():
        words.update(spell_sign(listed.word, UNICODE).split(", "))
    return words


def explained_on(page: str) -> set[str]:
    """The words that the help of a page explains before those of other pages."""
    words = set()
    for listed in divide_words(page).here:
        words.update(listed.word.split(", "))
    return words


@pytest.mark.parametrize("word", WORDS_OF_NEWCOMERS)
def test_words_that_newcomers_asked_for_are_explained(word: str) -> None:
    assert word in explained_words()


@pytest.mark.parametrize("name", IDLE)
def test_each_idle_reason_is_explained_with_its_letter(name: str) -> None:
    reason = IDLE[name]
    for page in ("timeline", "why"):
        meaning = find_meaning(reason.short, page)
        assert f"an idle reason ({reason.letter})" in meaning


@pytest.mark.parametrize("field", sorted(asdict(UNICODE).keys() - WITHOUT_MEANING))
def test_each_drawing_character_is_explained(field: str) -> None:
    """By its name, so that the help shows the one of this terminal."""
    explained = [word for word in read_screen_words() if f"{{{field}}}" in word.word]
    assert explained
    assert spell_sign(explained[0].word, ASCII).isascii()


def test_each_sign_of_a_row_of_the_diff_is_explained() -> None:
    signs = {mark for mark in diff_lines.MARKS.values()}
    (explained,) = (word for word in read_screen_words() if word.word == "~ + -")
    assert set(explained.word.split()) == signs
    assert all(f"`{sign}`: " in explained.meaning for sign in signs)


def test_the_sign_of_the_active_side_is_explained() -> None:
    assert f"{ACTIVE}A" in explained_on("timeline")


@pytest.mark.parametrize(
    "kind", [*RowKind, diff_lines.REGION, diff_lines.NOISE, *WORDS_OF_CLOSING_LINES]
)
def test_each_kind_of_row_of_the_diff_is_explained(kind: str) -> None:
    assert kind in explained_on("diff")


@pytest.mark.parametrize("page", ["timeline", "kernels"])
def test_each_kind_in_the_legend_is_explained(page: str) -> None:
    last_of_gpu = [*SliceKind].index(SliceKind.GPU_OTHER)
    kinds = [kind.removeprefix("gpu-") for kind in [*SliceKind][: last_of_gpu + 1]]
    assert set(kinds) <= explained_on(page)


@pytest.mark.parametrize("kind", sorted(KINDS - NOT_IN_THE_TABLE))
def test_each_exact_kind_of_a_kernel_is_explained(kind: str) -> None:
    """Those that the page of kernels shows after the kind of the legend."""
    assert find_meaning(IN_LEGEND.get(kind, kind), "kernels")


@pytest.mark.parametrize("arg", ["In split size", "Out split size"])
def test_empty_split_sizes_mean_the_same_in_the_details_as_in_the_help(
    arg: str,
) -> None:
    in_help = find_meaning(arg, "timeline")
    assert in_help
    assert MEANING_OF_ARG[arg].partition("; ")[2] == in_help.partition("; ")[2]


@pytest.mark.parametrize("arg", LAUNCH_ARGS)
def test_each_arg_of_a_launch_is_explained(arg: str) -> None:
    """In the help and beside its value."""
    assert find_meaning(arg, "timeline")
    assert arg in MEANING_OF_ARG


@pytest.mark.parametrize("holder", MEANING_OF_HOLDER)
def test_each_category_of_memory_has_one_meaning(holder: str) -> None:
    """The same below the list of memory and in the help."""
    meaning = find_meaning(holder.replace("_", " "), "memory")
    assert MEANING_OF_HOLDER[holder] in meaning


@pytest.mark.parametrize(
    ("page", "titles"),
    [
        ("kernels", {*SORTS} - {"name"}),
        ("ranks", {column.title for column in RANK_COLUMNS} - {""}),
        ("tree", {"GPU", "share", "total", "self", "kernels", "count"}),
        ("modules", {"GPU", "share", "forward", "backward", "self", "kernels"}),
        ("memory", {"share", "blocks", "in use", "holes"}),
    ],
)
def test_each_column_of_a_page_is_explained(page: str, titles: set[str]) -> None:
    assert titles <= explained_on(page)


def names_of_libraries() -> Iterator[str]:
    """What the decoders of kernel names call libraries: the second argument of
    `build`, the first of `Library`, and what is assigned to `family`."""
    for path in python_files(DECODERS):
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                place = {"build": 1, "_build_inductor_record": 1, "Library": 0}
                index = place.get(node.func.id)
                values = node.args[index : index + 1] if index is not None else []
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else []
                named = [
                    target.id for target in targets if isinstance(target, ast.Name)
                ]
                values = [node.value] if "family" in named and node.value else []
            else:
                continue
            for value in values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value


def test_each_library_of_a_kernel_is_explained() -> None:
    libraries = set(names_of_libraries())
    assert {"cublas-legacy", "aten-elementwise", "vllm-sglang", "cub"} <= libraries
    assert all(find_meaning(name, LIBRARIES) for name in libraries)


def test_each_explained_library_is_one_of_the_decoders() -> None:
    explained = []
    for word in read_screen_words():
        if LIBRARIES in word.pages:
            explained += [name.partition(" (")[0] for name in word.word.split(", ")]
    assert set(explained) == set(names_of_libraries())
    assert len(explained) == len(set(explained))


def test_words_are_grouped_by_pages_that_exist() -> None:
    for word in read_screen_words():
        assert word.meaning
        assert set(word.pages) <= {*BY_NAME, EVERYWHERE, LIBRARIES}


def test_a_word_has_one_meaning() -> None:
    words = [word.word for word in read_screen_words()]
    assert len(words) == len(set(words))


def test_the_help_of_a_page_has_all_words_and_its_own_first() -> None:
    divided = divide_words("diff")
    assert {*divided.here, *divided.elsewhere} == {*read_screen_words()}
    assert divided.here[0].pages == ("diff",)
    assert not any("diff" in word.pages for word in divided.elsewhere)


def test_examples_of_names_have_the_form_that_the_app_shows() -> None:
    """The examples in the help are words of short names that the decoder makes."""
    concatenation = decode(
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::"
        "(anonymous namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>(int)"
    )
    norm = decode("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128>(int)")
    product = decode("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1")
    assert concatenation
    assert norm
    assert product
    assert "4.64.64" in concatenation.short.split()
    assert "1C11" in norm.short
    assert "ogs" in product.short.split()
