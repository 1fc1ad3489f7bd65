"""What a release is made of: metadata, links, pages, pinned tools, and the workflow."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from tests.places import ROOT

from fusetui import __version__
from fusetui.command_line.parser import command_parsers

URL = "https://code.example/someone/fusetui"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
RELEASE = yaml.safe_load(
    (ROOT / ".github/workflows/release.yml").read_text(encoding="utf-8")
)
JOBS = RELEASE["jobs"]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))


def setup() -> Any:
    spec = importlib.util.spec_from_file_location("setup", ROOT / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_published_links_are_absolute_and_lead_somewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FUSETUI_URL", f"{URL}.git")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    metadata = setup().metadata()
    published = metadata["long_description"]
    targets = re.findall(r"\]\(([^)]*)\)|\b(?:src|srcset|href)=\"([^\"]*)\"", published)
    assert len(targets) >= len(re.findall(r"\]\(", readme)) > 20
    for one in ("".join(found) for found in targets):
        if one.startswith("https://") and not one.startswith(URL):
            continue
        kind, tag, path = one.removeprefix(f"{URL}/").split("/", 2)
        assert kind == ("raw" if path.endswith(".svg") else "blob")
        assert tag == f"v{__version__}"
        assert (ROOT / path.partition("#")[0]).is_file()
    assert {one.partition(URL)[0] for one in metadata["project_urls"].values()} == {""}


def test_a_checkout_names_no_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FUSETUI_URL", raising=False)
    assert setup().metadata() == {
        "long_description": (ROOT / "README.md").read_text("utf-8")
    }
    monkeypatch.setenv("FUSETUI_URL", "someone/fusetui")
    with pytest.raises(SystemExit, match="no https:// address"):
        setup().metadata()


def test_the_help_names_pages_that_come_along() -> None:
    assert PROJECT["tool"]["setuptools"]["data-files"]["share/doc/fusetui"] == [
        "docs/*.md"
    ]
    told = "".join(parser.format_help() for parser in command_parsers().values())
    named = set(re.findall(r"docs/\s*([\w-]+)\.md", told))
    assert len(named) > 5
    assert all((ROOT / f"docs/{page}.md").is_file() for page in named)


def test_the_lock_pins_what_development_needs() -> None:
    text = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
    assert "://" not in text
    entries = re.findall(
        r"^([\w.-]+)==([^\s;]+)(?: ;.*?)? \\\n((?:    --hash=sha256:\w{64}.*\n)+)",
        text,
        re.M,
    )
    assert len(entries) == len(re.findall("^[^ #]", text, re.M))
    pinned: dict[str, list[str]] = {}
    for name, version, _ in entries:
        pinned.setdefault(name, []).append(version)
    extras = PROJECT["project"]["optional-dependencies"]
    asked = [*PROJECT["project"]["dependencies"], *extras["dev"], *extras["docs"]]
    for one in map(Requirement, asked):
        if one.name != "fusetui":
            name = re.sub(r"[-_.]+", "-", one.name).lower()
            assert any(one.specifier.contains(version) for version in pinned[name]), one


def test_only_one_job_may_publish() -> None:
    assert RELEASE["permissions"] == {}
    assert {name: sorted(job["permissions"]) for name, job in JOBS.items()} == {
        "build": ["contents"],
        "wheels": ["contents"],
        "attest": ["attestations", "id-token"],
        "publish": ["id-token"],
    }
    assert JOBS["build"]["permissions"] == {"contents": "read"}
    assert (JOBS["attest"]["needs"], JOBS["publish"]["needs"]) == (
        ["build", "wheels"],
        "attest",
    )
    assert JOBS["publish"]["environment"] == "pypi"
    assert "password" not in str(RELEASE)


def test_actions_are_pinned() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    steps = [step for job in (*JOBS.values(), action["runs"]) for step in job["steps"]]
    used = [step["uses"] for step in steps if "uses" in step]
    assert len(used) > 7
    assert all(re.fullmatch(r"[\w-]+(/[\w-]+)+@[0-9a-f]{40}", one) for one in used)


@pytest.mark.parametrize(
    ("tag", "heading", "code"),
    [
        (f"v{__version__}", __version__, 0),
        ("v9.9.9", "9.9.9", 1),
        (f"v{__version__}", "9.9.9", 1),
    ],
)
def test_a_tag_is_that_of_the_version(
    tag: str, heading: str, code: int, tmp_path: Path
) -> None:
    (step,) = (
        one
        for one in JOBS["build"]["steps"]
        if one.get("name", "").startswith("tag and")
    )
    (tmp_path / "src").symlink_to(ROOT / "src")
    (tmp_path / "CHANGELOG.md").write_text(
        f"## [Unreleased]\n## [{heading}] - 2026-01-01\n"
    )
    found = subprocess.run(
        ["bash", "-e", "-c", step["run"]],
        cwd=tmp_path, env={"PATH": os.environ["PATH"], "GITHUB_REF_NAME": tag},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert found.returncode == code
    assert ("::error::" in found.stdout) == bool(code)


def test_the_steps_of_a_release_are_targets_of_make() -> None:
    scripts = [
        step["run"]
        for step in JOBS["build"]["steps"]
        if step.get("run", "").startswith("m")
    ]
    targets = [script.split()[1] for script in scripts]
    assert targets == ["locked", "check", "dist"]
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert all(f"\n{target}:" in rules for target in targets)


def test_the_version_is_one() -> None:
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == __version__
    assert cited["license"] == PROJECT["project"]["license"]


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_each_thing_once(form: Path) -> None:
    """As GitHub's syntax of issue forms has it."""
    asked = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(asked)
    assert len({one["id"] for one in asked["body"]}) == len(asked["body"])
    assert {one["type"] for one in asked["body"]} <= {"textarea", "input"}
    assert all(one["attributes"]["label"] for one in asked["body"])
