"""A checkout whose links became small files, as git on Windows and most programs for
ZIP write them, installs like any other."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests.packaging.building import built, setup
from tests.places import ROOT

LINKS = ["capture", "kernels", "sample_traces", "tui"]
NEEDED = (
    "src", "docs", *LINKS,
    "pyproject.toml", "setup.py", "README.md", "LICENSE", "MANIFEST.in",
)  # fmt: skip
"""What a build reads."""
SECONDS = 240  # until a build that hangs fails
TOLD = """
import fusetui.capture.command, fusetui.kernels, fusetui.sample_traces, fusetui.tui.app
print(fusetui.tui.__file__)
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The checkout without links."""
    folder = tmp_path_factory.mktemp("checkout").resolve()
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "*.so")
    for name in NEEDED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, symlinks=True, ignore=ignored)
        else:
            shutil.copy(path, folder / name)
    for name in LINKS:
        link = folder / "src" / "fusetui" / name
        text = os.readlink(link)
        link.unlink()
        link.write_text(text, encoding="utf-8")
    return folder


def run(*command: object, cwd: Path) -> str:
    """What a command prints."""
    ended = subprocess.run(
        [*map(str, command)],
        cwd=cwd, env=os.environ | {"FUSETUI_PURE": "1"},
        capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_setup_names_every_link_of_the_package() -> None:
    links = [
        path.name for path in (ROOT / "src/fusetui").iterdir() if path.is_symlink()
    ]
    assert sorted(links) == LINKS == sorted(setup().BESIDE_SRC)


def test_packages_are_the_same_with_and_without_links(checkout: Path) -> None:
    module = setup()
    assert module.package_folders(ROOT) == {"": "src"}
    assert module.package_folders(checkout) == {
        "": "src",
        "fusetui.capture": "capture",
        "fusetui.kernels": "kernels",
        "fusetui.sample_traces": "sample_traces",
        "fusetui.tui": "tui",
    }
    with_links = module.packages(ROOT)
    assert "fusetui.tui.drawing" in with_links
    assert sorted(module.packages(checkout)) == sorted(with_links)


@pytest.mark.dist
def test_wheel_of_a_checkout_without_links_has_the_same_files(
    checkout: Path, tmp_path: Path
) -> None:
    run(
        sys.executable, "-P", "-m", "build", "--no-isolation", "--outdir", tmp_path, ".",
        cwd=checkout,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("*.whl")
    expected = ZipFile(built("*.whl")).namelist()
    assert sorted(ZipFile(wheel).namelist()) == sorted(expected)


@pytest.mark.dist
def test_editable_installation_without_links_runs(
    checkout: Path, tmp_path: Path
) -> None:
    venv.create(tmp_path / "venv")
    program = tmp_path / "venv" / "bin"
    (installed,) = (tmp_path / "venv").glob("lib/python3*/site-packages")
    (installed / "outer.pth").write_text(sysconfig.get_path("purelib"))
    python = program / "python"
    run(
        python, "-m", "pip", "install", "--no-deps", "--no-build-isolation",
        "--editable", ".",
        cwd=checkout,
    )  # fmt: skip
    place = run(python, "-P", "-c", TOLD, cwd=tmp_path).strip()
    assert place == str(checkout / "tui" / "__init__.py")
    assert "gelu" in run(
        program / "fusetui", "kernels", "lesson:mlp-eager", cwd=tmp_path
    )
