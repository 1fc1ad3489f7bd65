"""The wheel of `make dist`, installed alone into an empty environment, shows a
lesson."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
from tests import starting
from tests.packaging.building import built
from tests.places import ROOT
from tests.terminal import Terminal

pytestmark = pytest.mark.dist
PATIENCE = 240  # seconds until an installation that hangs fails


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that holds the wheel and what it needs."""
    wheel, folder = built("*.whl"), tmp_path_factory.mktemp("empty") / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    _run(python, "-m", "pip", "--quiet", "install", wheel)
    return python


def _run(*command: object) -> str:
    """What a command prints, outside of this project."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("PYTHON")
    }
    found = subprocess.run(
        [*map(str, command)],
        capture_output=True, text=True, timeout=PATIENCE, cwd="/", env=own, check=False,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return found.stdout


def test_package_that_runs_is_the_installed_wheel(python: Path) -> None:
    place = _run(python, "-c", "import fusetui; print(fusetui.__file__)")
    assert Path(place).is_relative_to(python.parent.parent)


def test_commands_of_the_installed_wheel_answer(python: Path) -> None:
    program = python.parent / "fusetui"
    assert "gelu" in _run(program, "kernels", "lesson:mlp-eager")
    assert "fused" in _run(program, "diff", "lesson:mlp-eager", "lesson:mlp-compiled")
    assert "lesson:mlp-eager" in _run(program)
    assert "complete" in _run(program, "completion", "bash")


def test_the_documentation_comes_along_and_is_small(python: Path) -> None:
    page = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
    assert _run(python.parent / "fusetui", "help", "ci") == page
    assert (python.parent.parent / "share/man/man1/fusetui.1").is_file()
    with ZipFile(built("*.whl")) as archive:
        files = [
            one for one in archive.infolist() if ".data/data/share/" in one.filename
        ]
    assert len(files) > 20
    assert sum(one.compress_size for one in files) < 250_000


def test_a_release_says_where_it_is_from(python: Path) -> None:
    url = os.environ.get("FUSETUI_URL")
    if not url:
        pytest.skip("make dist FUSETUI_URL=https://... names a repository")
    told = _run(
        python,
        "-c",
        "import importlib.metadata as m; print(m.metadata('fusetui').json)",
    )
    assert f"Source, {url}'" in told
    assert f"]({url}/blob/v" in told
    assert "](docs/" not in told


def test_a_lesson_opens(python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "PYTHON", str(python))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with Terminal(
        ["open", "lesson:mlp-eager", "lesson:mlp-compiled"], anew=True
    ) as screen:
        screen.wait_for("fused")
        screen.press("q")
        assert screen.wait() == 0


def test_the_sdist_holds_documents_and_tests_and_no_links() -> None:
    with tarfile.open(built("*.tar.gz")) as archive:
        found = archive.getmembers()
    names = {member.name.partition("/")[2] for member in found}
    assert {"CHANGELOG.md", "docs/guide.md", "tests/conftest.py", "README.md"} <= names
    assert "src/fusetui/trace/load.py" in names
    assert not [member.name for member in found if member.issym() or member.islnk()]


def test_the_versions_of_python_are_those_that_run() -> None:
    """Classifiers name this version; .ci/run runs the tests with it."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert f"Python :: {version}" in (ROOT / "pyproject.toml").read_text(
        encoding="utf-8"
    )
