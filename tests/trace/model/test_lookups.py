"""Look-ups in sorted arrays, groups and sums of ranges, against plain Python."""

from __future__ import annotations

import doctest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fusetui.trace.model import arrays, grouping, sorted_arrays

numbers = st.lists(st.integers(0, 9), max_size=12)
some_numbers = st.lists(st.integers(0, 9), min_size=1, max_size=12)


@pytest.mark.parametrize("module", [arrays, grouping, sorted_arrays])
def test_examples_in_docstrings_hold(module: object) -> None:
    outcome = doctest.testmod(module)  # type: ignore[arg-type]
    assert outcome.attempted > 0
    assert outcome.failed == 0


@given(numbers, numbers)
def test_lookups_agree_with_a_search_of_all_elements(
    elements: list[int], values: list[int]
) -> None:
    ascending = np.array(sorted(elements), dtype=np.int64)
    wanted = np.array(values, dtype=np.int64)
    below = [sum(element < value for element in elements) for value in values]
    until = [sum(element <= value for element in elements) for value in values]

    assert sorted_arrays.count_below(ascending, wanted).tolist() == below
    assert sorted_arrays.count_until(ascending, wanted).tolist() == until
    assert sorted_arrays.last_before(ascending, wanted).tolist() == [
        count - 1 for count in below
    ]
    assert arrays.last_at_or_before(ascending, wanted).tolist() == [
        count - 1 for count in until
    ]
    assert sorted_arrays.is_in(ascending, wanted).tolist() == [
        value in elements for value in values
    ]


@given(numbers, st.integers(0, 9), st.integers(0, 9))
def test_ranges_of_values_have_the_elements_between_their_bounds(
    elements: list[int], begin: int, length: int
) -> None:
    end = begin + length
    ascending = np.array(sorted(elements), dtype=np.int64)
    inside = [element for element in sorted(elements) if begin <= element < end]
    found = ascending[sorted_arrays.slice_between(ascending, begin, end)]
    assert found.tolist() == inside

    counts = sorted_arrays.count_between(ascending, np.array([begin]), np.array([end]))
    assert counts.tolist() == [len(inside)]


@given(numbers, st.data())
def test_groups_have_the_elements_of_each_key_in_order(
    keys: list[int], data: st.DataObject
) -> None:
    size = len(keys)
    times = data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size))
    groups = grouping.grouped(
        np.array(keys, dtype=np.int64), np.array(times, dtype=np.int64)
    )

    assert groups.keys.tolist() == sorted(set(keys))
    for key, members in zip(
        groups.keys.tolist(), groups.members_of_each(), strict=True
    ):
        of_key = [element for element in range(size) if keys[element] == key]
        assert members.tolist() == sorted(of_key, key=lambda element: times[element])
    firsts = [members[0] for members in groups.members_of_each()]
    assert groups.first.tolist() == firsts
    middles = [members[len(members) // 2] for members in groups.members_of_each()]
    assert groups.upper_median.tolist() == middles
    assert len(groups) == len(firsts)
    assert groups.counts.tolist() == [keys.count(key) for key in sorted(set(keys))]
    sums = [sum(members.tolist()) for members in groups.members_of_each()]
    assert groups.sums(np.arange(size)).tolist() == sums


@given(some_numbers, st.data())
def test_ids_with_most_are_those_of_a_dictionary(
    ids: list[int], data: st.DataObject
) -> None:
    size = len(ids)
    amounts = data.draw(st.lists(st.integers(0, 9), min_size=size, max_size=size))
    totals: dict[int, int] = dict.fromkeys(range(10), 0)
    for number, amount in zip(ids, amounts, strict=True):
        totals[number] += amount

    most = max(totals.values())
    heaviest = min(number for number in totals if totals[number] == most)
    assert arrays.heaviest_id(np.array(ids), np.array(amounts)) == heaviest
    assert arrays.used_ids(np.array(ids)) == sorted(set(ids))


@given(some_numbers, st.data())
def test_runs_and_ranges_have_the_figures_of_their_parts(
    values: list[int], data: st.DataObject
) -> None:
    size = len(values)
    array = np.array(values, dtype=np.int64)
    later_begins = data.draw(st.sets(st.integers(0, size - 1)))
    begins = sorted({0, *later_begins})
    ends = [*begins[1:], size]
    parts = [values[first:end] for first, end in zip(begins, ends, strict=True)]
    first = np.array(begins, dtype=np.intp)

    end = np.array(ends, dtype=np.intp)
    for operation, of_part in ((np.minimum, min), (np.maximum, max), (np.add, sum)):
        expected = [of_part(part) for part in parts]
        of_groups = arrays.reduce_groups(operation, array, first)
        of_ranges = arrays.reduce_ranges(operation, array, first, end)
        assert of_groups.tolist() == expected
        assert of_ranges.tolist() == expected
    sums = arrays.sums_of_ranges(array, first, np.array(ends))
    assert sums.tolist() == [*map(sum, parts)]
    counts = np.diff([*begins, size])
    assert arrays.numbers_of_sized_groups(counts).tolist() == [
        number for number, part in enumerate(parts) for _ in part
    ]
