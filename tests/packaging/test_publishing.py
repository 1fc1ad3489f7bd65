"""What a release is made of: metadata, links, pages, pinned tools, and the workflow."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from tests.packaging.building import setup
from tests.places import ROOT

from fusetui import __version__
from fusetui.command_line.parser import command_parsers

URL = "https://code.example/someone/fusetui"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
WORKFLOWS: dict[str, Any] = {
    path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / ".github/workflows").glob("*.yml"))
}
RELEASE = WORKFLOWS["release"]
JOBS = RELEASE["jobs"]
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))


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
    patterns = PROJECT["tool"]["setuptools"]["data-files"]["share/doc/fusetui"]
    shipped = {path.name for pattern in patterns for path in ROOT.glob(pattern)}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")}
    about_the_source_tree = {
        "ARCHITECTURE.md",
        "files.md",
        "one-kernel.md",
        "releasing.md",
    }
    assert pages - shipped == about_the_source_tree
    told = "".join(parser.format_help() for parser in command_parsers().values())
    named = set(re.findall(r"docs/\s*([\w-]+)\.md", told))
    assert len(named) > 5
    assert {f"{page}.md" for page in named} <= shipped


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
        "checks": ["contents"],
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
    jobs = [job for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()]
    steps = [step for job in (*jobs, action["runs"]) for step in job.get("steps", ())]
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


def targets_of_make(workflow: dict[str, Any]) -> list[str]:
    """The targets of make that the steps of a workflow run, in their order."""
    targets: list[str] = []
    for job in workflow["jobs"].values():
        for step in job.get("steps", ()):
            words = step.get("run", "").split()
            if words[:1] == ["make"]:
                targets += [word for word in words[1:] if "=" not in word]
    return targets


def test_a_release_is_built_and_checked_by_make() -> None:
    assert targets_of_make(RELEASE) == ["locked", "check", "dist"]


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_target_that_a_workflow_runs_is_in_the_makefile(name: str) -> None:
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in targets_of_make(WORKFLOWS[name]):
        assert f"\n{target}:" in rules


def test_a_release_waits_for_the_checks_of_every_change() -> None:
    assert JOBS["checks"]["uses"] == "./.github/workflows/checks.yml"
    assert JOBS["build"]["needs"] == JOBS["wheels"]["needs"] == "checks"


def test_the_slow_tests_run_before_a_release_and_every_night() -> None:
    """The checks, for which a release waits, measure the coverage of all tests."""
    rules = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("coverage", "test-all"):
        (rule,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)+)", rules, re.MULTILINE)
        assert '-m "not dist" ' in rule
    assert "coverage" in targets_of_make(WORKFLOWS["checks"])
    assert "test-all" in targets_of_make(WORKFLOWS["nightly"])


def test_every_night_builds_the_wheels_of_a_release() -> None:
    every_night = WORKFLOWS["nightly"]["jobs"]["wheels"]["uses"]
    assert every_night == JOBS["wheels"]["uses"] == "./.github/workflows/wheels.yml"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_workflow_may_do_nothing_that_its_jobs_do_not_name(name: str) -> None:
    assert WORKFLOWS[name]["permissions"] == {}


@pytest.mark.parametrize("name", ["checks", "nightly"])
def test_checks_may_only_read_the_repository(name: str) -> None:
    for job in WORKFLOWS[name]["jobs"].values():
        assert job["permissions"] == {"contents": "read"}


def test_every_job_is_in_the_table_of_the_docs() -> None:
    page = (ROOT / "docs" / "releasing.md").read_text(encoding="utf-8")
    for job in WORKFLOWS["checks"]["jobs"]:
        assert f"\n| {job} |" in page


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
