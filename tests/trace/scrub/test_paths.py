"""Folders become placeholders; file names, lines and paths in site-packages are
kept."""

from __future__ import annotations

import pytest

from fusetui.trace.scrub.names import Names
from fusetui.trace.scrub.paths import scrub_hosts, scrub_path, scrub_paths
from fusetui.trace.scrub.secrets import Placeholders


def scrubbed(text: str) -> str:
    return scrub_paths(text, Placeholders())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/ada/net.py(12): main", "dir1/net.py(12): main"),
        (
            "/a/x.py(3): f;/b/y.py(4): g;z.py(2): h",
            "dir1/x.py(3): f;dir2/y.py(4): g;z.py(2): h",
        ),
        ("</home/ada/a.py:3>", "<dir1/a.py:3>"),
        ("a\n/home/ada/b.py", "a\ndir1/b.py"),
        ('File "/home/ada/x.py", line 3', 'File "dir1/x.py", line 3'),
        ("saved to /a/b.py.", "saved to dir1/b.py."),
        ("C:\\Users\\ada\\train.py(3): f", "dir1/train.py(3): f"),
        ("D:/share/x.pt", "dir1/x.pt"),
        ("\\\\server\\share\\x.txt", "dir1/x.txt"),
        ("models/net.py(3): f", "dir1/net.py(3): f"),
        ("src\\models\\net.py", "dir1/net.py"),
        ("../lib/y.cpp", "dir1/y.cpp"),
        ("./net.py", "./net.py"),
        ("~/proj/x.py", "dir1/x.py"),
        ("~ada/x.py", "dir1/x.py"),
        ("$HOME/x.csv and ${DATA}/y.csv", "dir1/x.csv and dir2/y.csv"),
        ("file:///home/ada/x.json", "file:dir1/x.json"),
        ("file%3A%2F%2F%2Fhome%2Fada", "dir1"),
        ("-I/home/ada/inc -L/opt/own/lib", "-Idir1 -Ldir2"),
        ("/usr/lib:/opt/own/lib", "dir1:dir2"),
        ("/lib/libcudnn.so.9.1", "dir1/libcudnn.so.9.1"),
        ("/home/ada/my work/x.py(1): f", "dir1/x.py(1): f"),
        ("/home/ada/proj (copy)/x.py(1): f", "dir1/x.py(1): f"),
        ("/home/ada/secret project", "dir1"),
        ("/home/ada", "dir1"),
        ("/home/first.c", "dir1"),
        ("/home/ada/.ssh", "dir1"),
        ("/home/ädä/prøjekt/x.py", "dir1/x.py"),
    ],
)
def test_folders_become_placeholders(text: str, expected: str) -> None:
    assert scrubbed(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Torch-Compiled Region: 0/0",
        "void at::native::kernel<4, float>(int, std::array<char*, 1ul>)",
        "a / b",
        "tokens/s",
        "train/loss",
        "jit(main)/jit(step)/dot_general",
        "</s>",
        "torch/nn/modules/linear.py(125): forward",
        "json/decoder.py(3): decode",
        "train.py(3): main",
        "dir1/train.py(3): main",
        "dir1/site-packages/torch/x.py",
        "https://pytorch.org/docs/stable",
    ],
)
def test_the_rest_stays(text: str) -> None:
    assert scrubbed(text) == text


def test_paths_below_site_packages_stay_and_two_environments_stay_apart() -> None:
    given = Placeholders()
    paths = (
        f"/{venv}/lib/python3.12/site-packages/torch/nn/init.py(1): f" for venv in "ab"
    )
    assert [scrub_paths(path, given) for path in paths] == [
        "dir1/site-packages/torch/nn/init.py(1): f",
        "dir2/site-packages/torch/nn/init.py(1): f",
    ]


def test_the_same_folder_has_the_same_placeholder_another_one_another() -> None:
    given = Placeholders()
    names = ["/a/b/x.py", "/a/c/x.py", "/a/b/y.py"]
    assert [scrub_paths(name, given) for name in names] == [
        "dir1/x.py",
        "dir2/x.py",
        "dir1/y.py",
    ]


def test_a_data_file_beside_a_package_of_that_name_is_not_the_package() -> None:
    assert scrubbed("json/own/data.json") == "dir1/data.json"


def test_a_value_that_is_one_path_is_a_folder_to_its_end() -> None:
    assert scrub_path("own project", Placeholders()) == "dir1"
    assert scrub_path("/data/own run", Placeholders()) == "dir1"


@pytest.mark.parametrize(
    "piece", ["/a", "/a ", "a/", "/(", "/a(b", "../", "/x y.py ", "\\", "$a"]
)
def test_time_is_linear(piece: str) -> None:
    """A quadratic pattern would take minutes."""
    assert scrubbed(piece * 20_000) is not None


@pytest.mark.parametrize(
    ("text", "is_address"), [("10.20.30.255", True), ("10.20.30.256", False)]
)
def test_each_part_of_an_ip_address_is_one_byte(text: str, is_address: bool) -> None:
    scrubbed_text = scrub_hosts(text, Names(Placeholders()))
    assert (scrubbed_text != text) is is_address
