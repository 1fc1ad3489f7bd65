"""Every name of a corpus of real names: how many are decoded, and that the fields are
right.

The corpus is a list of real kernel names with what is certain about each. It is not
part of the repository, but lies next to the folder of traces. Names that we made are in
`tests/gpu/kernel_names/written.py`.
"""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from tests.real.traces import TRACES, existing

from fusetui.gpu.kernel_names import decode

SETTLED: Mapping[str, tuple[str, Mapping[str, str]]] = {
    # torch._fused_sgd_ (aten/src/ATen/native/cuda/FusedSgdKernel.cu): the corpus says
    # foreach, but by the grammar that it follows a functor that says SGD is an
    # optimizer.
    "FusedSgdMathFunctor": ("aten-other", {"op": "optimizer"}),
    # A name that says TileLang, which the corpus has no family for.
    "mhc_pre_big_fuse_with_norm_tilelang_kernel": ("tilelang", {}),
}
"""Where the corpus is wrong, by what the name contains: the family, and the fields that
differ."""

CORPUS = TRACES.parent / "kernel_names.jsonl"


@pytest.fixture(scope="module")
def counts() -> Counter[str]:
    total: Counter[str] = Counter()
    for line in existing(CORPUS).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        name, family, expected = row["name"], row["family"], row["expect"]
        for word, (of_it, fields) in SETTLED.items():
            if word in name:
                family, expected = of_it, {**expected, **fields}
        total.update(compare(name, family, expected))
    print(f"\n{dict(total)}")
    return total


def compare(name: str, family: str, expected: dict[str, Any]) -> dict[str, int]:
    found = decode(name)
    json_found = (
        json.loads(msgspec.json.encode(found)) if found else {"family": "other"}
    )
    given = [key for key in expected if key in json_found]
    wrong = [key for key in given if json_found[key] != expected[key]]
    return {
        "names": 1,
        "families right": json_found["family"] == family,
        "certain": len(expected),
        "given": len(given),
        "wrong": len(wrong),
    }


def test_every_name_of_the_corpus_has_the_right_family(counts: Counter[str]) -> None:
    assert counts["families right"] == counts["names"]


def test_certain_fields_are_given(counts: Counter[str]) -> None:
    assert counts["given"] == counts["certain"]


def test_given_fields_are_right(counts: Counter[str]) -> None:
    assert counts["wrong"] == 0
