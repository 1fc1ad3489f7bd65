"""Tensors are copied and cast."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fusetui.analysis.why.rules.memory import CASTS, COPIES, JOINS

from .conftest import Ask
from .work import A100, ADD, COPY, ROWS, Event, module, work


def test_casts_and_copies_reports_copy_kernels_of_the_device(found: Ask) -> None:
    (finding,) = found(
        "casts-and-copies", work(("aten::copy_", COPY, 30), ("aten::add", ADD, 70))
    )
    assert finding.at_stake_ns == 30_000
    assert finding.text == (
        "1 copy or cast takes 30 us (30.0 % of the span), most of it in aten::copy_."
    )


def test_copies_in_a_run_of_pointwise_kernels(found: Ask) -> None:
    """Of three copies, one lies between two adds of a module."""
    kernels = [
        ("aten::add", ADD, 30),
        ("aten::copy_", COPY, 30),
        ("aten::add", ADD, 30),
    ]
    apart = [("aten::copy_", COPY, 20)] * 2
    events = [module("Block_0", 0, 29), *work(*kernels, *apart, args=ROWS)]
    (finding,) = found("casts-and-copies", events, **A100)
    assert finding.text.endswith(
        "of it in aten::copy_; the fusable-run finding also counts 30 us of this."
    )
    assert finding.part_of is None
    (finding,) = found(
        "casts-and-copies",
        [module("Block_0", 0, 29), *work(*kernels, args=ROWS)],
        **A100,
    )
    assert finding.part_of == "fusable-run"


def test_runs_of_two_modules_next_to_each_other(found: Ask) -> None:
    """Both have a copy."""
    kernels = [("aten::add", ADD, 30), ("aten::copy_", COPY, 30)] * 2
    blocks = [module("Block_0", 0, 19), module("Block_1", 20, 19)]
    (finding,) = found(
        "casts-and-copies", [*blocks, *work(*kernels, args=ROWS)], **A100
    )
    assert finding.part_of == "fusable-run"


def test_copies_within_the_device_count(
    found: Ask, event: Callable[..., Event]
) -> None:
    """A contiguous tensor is copied without a kernel: 40 us beside a copy kernel of
    30."""
    kernels = work(("aten::copy_", COPY, 30), ("aten::add", ADD, 100))
    copy = event(
        "Memcpy DtoD (Device -> Device)", 2_000, 40, cat="gpu_memcpy", pid=0, tid=7
    )
    (finding,) = found("casts-and-copies", [*kernels, copy])
    assert finding.text.startswith("1 copy and 1 copy or cast take 70 us")
    host = event(
        "Memcpy HtoD (Pinned -> Device)", 2_000, 40, cat="gpu_memcpy", pid=0, tid=7
    )
    (finding,) = found("casts-and-copies", [*kernels, host])
    assert finding.at_stake_ns == 30_000


CAT = (
    "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous "
    "namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>(int)"
)
NOCAST = (
    "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<"
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() "
    "const::{lambda()#7}::operator()() const::{lambda(float)#1}>(at::TensorIteratorBase&)"
)
OLD = NOCAST.replace("gpu_kernel_impl_nocast", "gpu_kernel_impl")
"""Of torch before 2.0, or a cast of a later one: the loop handles four elements at once."""
OLD_COPY = OLD.replace("128, 4", "128, 2")
OLD_HALF = OLD.replace("(float)", "(c10::Half)")
DEVICE_COPY = (
    "void at::native::unrolled_elementwise_kernel<at::native::copy_device_to_device("
    "at::TensorIterator&, bool)::{lambda()#2}::operator()() const::{lambda()#8}::operator()() "
    "const::{lambda(float)#1}, at::detail::Array<char*, 2>, OffsetCalculator<1, unsigned int>, "
    "char*, at::native::memory::LoadWithoutCast, at::detail::Array<char*, 2>::StoreWithoutCast>(int)"
)
HALF = COPY.replace("direct_copy_kernel_cuda", "bfloat16_copy_kernel_cuda")


@pytest.mark.parametrize(
    ("kernels", "told"),
    [
        ([(HALF, 100)], [CASTS]),
        ([(NOCAST, 100)], [COPIES]),
        ([(CAT, 100)], [JOINS]),
        ([(CAT, 95), (HALF, 5)], [JOINS]),
        ([(CAT, 80), (HALF, 20)], [CASTS, JOINS]),
        ([(COPY, 100)], [CASTS, COPIES]),
        ([(OLD_COPY, 100)], [COPIES]),
        ([(OLD, 100)], [CASTS]),
        ([(OLD_HALF, 100)], [CASTS, COPIES]),
        ([(OLD_HALF, 80), (NOCAST, 20)], [CASTS, COPIES]),
        ([(DEVICE_COPY, 100)], [COPIES]),
    ],
)
def test_the_remedy_is_for_what_there_is(
    found: Ask, kernels: list[tuple[str, int]], told: list[str]
) -> None:
    (finding,) = found(
        "casts-and-copies", work(*(("aten::copy_", *one) for one in kernels))
    )
    assert finding.try_ is not None
    assert [one for one in (CASTS, COPIES, JOINS) if one in finding.try_] == told


def test_copies_from_pageable_memory_are_reported_with_their_exposed_time(
    found: Ask,
) -> None:
    """Of the copy 20 us lie beside the kernel."""
    copy: Event = {
        "ph": "X",
        "cat": "gpu_memcpy",
        "name": "Memcpy HtoD (Pageable -> Device)",
    }
    copy |= {"pid": 0, "tid": 9, "ts": 1_080, "dur": 50, "args": {"correlation": 9}}
    (finding,) = found("casts-and-copies", [*work(("aten::add", ADD, 100)), copy])
    assert finding.at_stake_ns == 30_000
    assert "pageable memory" in finding.text


def read_back(event: Callable[..., Event], name: str, *behind: Event) -> list[Event]:
    """A kernel, and at 1,100 us a copy that blocks, with some calls behind it."""
    link = {"correlation": 9}
    copy = event(name, 1_110, 50, cat="gpu_memcpy", pid=0, tid=7, args=link)
    call = event("cudaMemcpyAsync", 1_100, 62, cat="cuda_runtime", args=link)
    return [*work(("aten::add", ADD, 100)), call, copy, *behind]


TO_HOST = "Memcpy DtoH (Device -> Pageable)"


def test_a_wait_behind_a_copy_to_the_host_stays(
    found: Ask, event: Callable[..., Event]
) -> None:
    wait = event("cudaStreamSynchronize", 1_163, 3, cat="cuda_runtime")
    (finding,) = found("casts-and-copies", read_back(event, TO_HOST, wait))
    assert finding.at_stake_ns == 50_000
    assert finding.text.endswith(
        "takes 50 us (31.3 % of the span) in 1 transfer while no kernel runs. One "
        "transfer goes to the CPU, and the program then waits for the GPU. That wait would remain."
    )


def test_no_wait_stays_where_none_is_behind_the_copy(
    found: Ask, event: Callable[..., Event], launched: Callable[..., list[Event]]
) -> None:
    """None at all; one of another thread; one after another launch; and one behind a
    copy to the device, which needs none."""
    wait = event("cudaStreamSynchronize", 1_203, 3, cat="cuda_runtime")
    others = (
        read_back(event, TO_HOST),
        read_back(event, TO_HOST, wait | {"tid": 2}),
        read_back(event, TO_HOST, *launched(99, 1_180, 1_190), wait),
        read_back(event, "Memcpy HtoD (Pageable -> Device)", wait),
    )
    for events in others:
        (finding,) = found("casts-and-copies", events)
        assert finding.text.endswith("while no kernel runs.")


def test_copies_that_set_the_program_up_are_silent(
    found: Ask, event: Callable[..., Event]
) -> None:
    """Weights are copied before the first kernel; with steps, each may begin with such
    a copy."""
    copy = event(
        "Memcpy HtoD (Pageable -> Device)", 900, 50, cat="gpu_memcpy", pid=0, tid=7
    )
    events = [copy, *work(("aten::add", ADD, 100))]
    assert found("casts-and-copies", events) == []
    step = event("ProfilerStep#1", 0, 2_000, cat="user_annotation")
    assert found("casts-and-copies", [*events, step])
    assert found("casts-and-copies", [*events, copy | {"ts": 2_000}])


def test_copies_within_the_device_that_set_the_program_up_are_silent(
    found: Ask, event: Callable[..., Event]
) -> None:
    """Weights are laid out before the first kernel; a copy after it is one of the
    program."""
    kernels = work(("aten::add", ADD, 100))
    name = "Memcpy DtoD (Device -> Device)"
    first = min(one["ts"] for one in kernels if one["cat"] == "kernel")
    before = event(name, first - 60, 50, cat="gpu_memcpy", pid=0, tid=7)
    assert found("casts-and-copies", [before, *kernels]) == []
    after = event(name, first + 200, 50, cat="gpu_memcpy", pid=0, tid=7)
    (finding,) = found("casts-and-copies", [before, *kernels, after])
    assert finding.at_stake_ns == 100_000


def test_kernels_that_do_not_copy_are_not_reported(found: Ask) -> None:
    assert found("casts-and-copies", work(("aten::add", ADD, 100))) == []


def test_kernels_count_by_the_busy_time(found: Ask) -> None:
    """30 of 100 us of work are told, though they are 0.3 % of the span."""
    events = work(("aten::copy_", COPY, 30), ("aten::add", ADD, 70), gap=10_000)
    (finding,) = found("casts-and-copies", events)
    assert "(0.3 % of the span, 30 % of the busy time)" in finding.text
    small = work(("aten::copy_", COPY, 4), ("aten::add", ADD, 96), gap=10_000)
    assert found("casts-and-copies", small) == []


@pytest.mark.parametrize(
    ("types", "told"),
    [
        (["float", "float"], "1 copy takes"),
        (["float", "c10::Half"], "1 cast takes"),
        ([], "1 copy or cast takes"),
    ],
)
def test_the_types_of_copy_tell_what_its_name_does_not(
    found: Ask, types: list[str], told: str
) -> None:
    sizes = [[1024, 1024], [1024, 1024]]
    args = {"Input Dims": sizes, "Input type": types} if types else {}
    events = work(("aten::copy_", COPY, 30), ("aten::add", ADD, 70), args=args)
    (finding,) = found("casts-and-copies", events)
    assert finding.text.startswith(told)
