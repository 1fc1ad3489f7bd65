"""Names of users and hosts are removed wherever they occur as a word."""

from __future__ import annotations

import pytest

from fusetui.trace.model.op_names import aten_ops
from fusetui.trace.scrub.names import Names
from fusetui.trace.scrub.paths import scrub_urls
from fusetui.trace.scrub.secrets import Placeholders


def names(*users: str, hosts: tuple[str, ...] = ()) -> Names:
    found = Names(Placeholders())
    for user in users:
        found.user(user)
    for host in hosts:
        found.host(host)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ada", "<user1>"),
        ("run of Ada: 3", "run of <user1>: 3"),
        ("ADA_run3", "<user1>_run3"),
        ("ada2", "<user1>2"),
        ("AdaModel", "<user1>Model"),
        ("myAda", "my<user1>"),
        ("_Z3adaPf", "_Z3<user1>Pf"),
        ("ada's ada", "<user1>'s <user1>"),
    ],
)
def test_a_name_is_found_in_any_case_and_between_words(
    text: str, expected: str
) -> None:
    assert names("ada").scrub(text) == expected


@pytest.mark.parametrize(
    "text", ["adapter", "Canada", "adam", "adaptive_avg_pool2d", "<user1>"]
)
def test_a_name_is_not_found_inside_words(text: str) -> None:
    assert names("ada").scrub(text) == text


def test_a_host_is_found_with_and_without_its_domain() -> None:
    found = names(hosts=("box-17.lab.example",))
    assert found.scrub("box-17.lab.example box-17 box-170 xbox-17") == (
        "<host1> <host2> box-170 xbox-17"
    )


@pytest.mark.parametrize(
    "user", ["max", "root", "user", "python", "kernel", "ed", "1000"]
)
def test_common_and_short_names_are_not_looked_for(user: str) -> None:
    found = names(user)
    text = f"aten::{user} of {user}"
    assert found.user(user) == "<user1>"
    assert found.scrub(text) == text


def test_no_user_can_change_the_name_of_an_op() -> None:
    found = names(*aten_ops(), *(part for op in aten_ops() for part in op.split("_")))
    assert [
        op for op in aten_ops() if found.scrub(f"aten::{op}") != f"aten::{op}"
    ] == []


def test_words_of_ops_in_the_file_stay() -> None:
    found = names("frobnicate")
    assert found.scrub("cudaFrobnicate") == "cuda<user1>"
    found.see("cudaFrobnicate")
    assert found.scrub("cudaFrobnicate") == "cudaFrobnicate"


def test_many_names_cost_no_more_than_few() -> None:
    """One search for each name would take hours."""
    found = names(*(f"user-{n}x" for n in range(30_000)))
    assert found.scrub("user-17x " * 20_000).count("<user18>") == 20_000


def test_the_password_of_a_url_goes_wherever_it_occurs() -> None:
    found = Names(Placeholders())
    scrub_urls("postgres://ada:open-sesame-42@db.own.example/x", Placeholders(), found)
    assert "open-sesame-42" not in found.scrub("connected with open-sesame-42")


def test_a_login_without_a_password_is_the_name_of_a_user() -> None:
    found = Names(Placeholders())
    scrub_urls("ssh://adalovelace@git.own.example/x", Placeholders(), found)
    assert found.scrub("adalovelace") == "<user1>"
