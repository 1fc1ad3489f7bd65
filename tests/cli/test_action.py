"""The action of action.yml: its shell runs in bash, as a runner of GitHub would have
it; of the actions that it uses, the cache is a folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from tests.places import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
PATIENCE = 60  # seconds that a step may take
File = Callable[..., Path]
Values = dict[str, Any]


def value(expression: str, values: Values) -> Any:
    """What an expression is, such as `inputs.store == 'true'`."""

    def known(found: re.Match[str]) -> str:
        if found[1]:
            return found[1]
        at: Any = values
        for part in found[0].split("."):
            at = at.get(part, "") if isinstance(at, Mapping) else ""
        return repr(at)

    words = re.sub(r"('[^']*')|[a-z_]+(?:\.[\w-]+)+", known, expression).replace(
        "&&", "and"
    )
    found = eval(words)
    return str(found).lower() if isinstance(found, bool) else found


def filled(text: str, values: Values) -> str:
    return re.sub(
        r"\$\{\{(.*?)\}\}", lambda found: str(value(found[1].strip(), values)), text
    )


class Ran(NamedTuple):
    """How a run of the action ended."""

    code: int
    log: str
    summary: str
    outputs: dict[str, str]


class Runner:
    """A machine on which jobs run one after another; its cache stays."""

    def __init__(self, place: Path) -> None:
        self.place, self.jobs, self.cache = place, 0, place / "cache"
        program = place / "fusetui"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -P -m fusetui "$@"\n')
        program.chmod(0o700)

    def run(self, event: str, **inputs: str) -> Ran:
        """One job."""
        self.jobs += 1
        job = self.place / f"job{self.jobs}"
        job.mkdir()
        event_of: Values = {
            "event_name": event,
            "ref_name": "main" if event == "push" else "1/merge",
        }
        event_of |= {
            "event": {"repository": {"default_branch": "main"}},
            "run_id": str(self.jobs),
        }
        values: Values = {"github": event_of, "runner": {"os": "Linux"}, "steps": {}}
        given = {"program": str(self.place / "fusetui"), **inputs}
        values["inputs"] = {
            name: given.get(name, filled(str(one.get("default", "")), values))
            for name, one in ACTION["inputs"].items()
        }
        code, log = 0, ""
        for step in STEPS:
            if code or ("if" in step and value(step["if"], values) != "true"):
                continue
            outcome: Values = {"outputs": {}, "outcome": "success"}
            if "uses" in step:
                self._cache(step, values)
            else:
                code, said, outcome["outputs"] = self._shell(step, values, job)
                log += said
            values["steps"][step.get("id", step["name"])] = outcome
        outputs = {
            n: filled(one["value"], values) for n, one in ACTION["outputs"].items()
        }
        summary = job / "summary.md"
        return Ran(code, log, summary.read_text() if summary.exists() else "", outputs)

    def _cache(self, step: Values, values: Values) -> None:
        """The newest baseline whose key begins as it should, or a new one."""
        path = Path(filled(step["with"]["path"], values))
        key = self.cache / filled(step["with"]["key"], values)
        if step["uses"].startswith("actions/cache/save@"):
            shutil.copytree(path, key, symlinks=True)  # as tar has them
        else:
            assert step["uses"].startswith("actions/cache/restore@")
            folder = self.cache / filled(step["with"]["restore-keys"], values)
            for newest in sorted(folder.glob("*"))[-1:]:
                shutil.copytree(newest, path, symlinks=True)

    def _shell(
        self, step: Values, values: Values, job: Path
    ) -> tuple[int, str, dict[str, str]]:
        assert step["shell"] == "bash"
        assert "${{" not in step["run"], "what is put into a script is run"
        output = job / "output"
        output.write_text("")
        own = {name: filled(text, values) for name, text in step.get("env", {}).items()}
        files = {
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(job / "summary.md"),
        }
        where = {
            "GITHUB_ACTIONS": "true",
            "RUNNER_TEMP": str(job),
            "GITHUB_ACTION_PATH": str(ROOT),
            "PATH": "/usr/bin:/bin",
        }
        ran = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env={**where, **files, **own, "PYTHONPATH": str(ROOT / "src"), "HOME": str(job)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE,
            cwd=job, check=False,
        )  # fmt: skip
        told = dict(line.split("=", 1) for line in output.read_text().splitlines())
        return ran.returncode, ran.stdout, told


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    (tmp_path / "runner").mkdir()
    return Runner(tmp_path / "runner")


def test_a_baseline_is_stored_and_compared_with(
    runner: Runner, trace_file: File
) -> None:
    before = trace_file("a,b.json", steps=8)
    first = runner.run("push", trace=str(before), expect="kernels=4")
    assert (first.code, first.outputs["verdict"]) == (0, "no-baseline")
    assert "passed | kernels=4" in first.summary
    again = runner.run("pull_request", trace=str(before))
    assert (again.code, again.outputs["verdict"]) == (0, "passed")
    assert "::" not in again.log
    slower = runner.run("pull_request", trace=str(trace_file("c,d.json", 2, steps=8)))
    assert (slower.code, slower.outputs["verdict"]) == (1, "failed")
    (said,) = slower.log.splitlines()
    assert said.startswith("::error file=")
    assert "c%2Cd.json,title=fusetui diff::" in said
    assert "more than 5 %25 slower" in said
    assert "| failed | " in slower.summary
    folder = Path(slower.outputs["junit"])
    suite = ET.parse(folder / "diff.xml").getroot()[0]
    assert (suite.attrib["tests"], suite.attrib["failures"]) == ("1", "1")
    assert (
        Path(slower.outputs["markdown"]).read_text().startswith("**a,b -> c,d: B is ")
    )
    assert len([*runner.cache.glob("*/*/*/*")]) == 1, "a pull request stores nothing"


def test_action_reports_inconclusive_and_unreadable_traces(
    runner: Runner, trace_file: File, tmp_path: Path
) -> None:
    few = str(trace_file("few.json", steps=3))
    runner.run("push", trace=few, name="few")
    unclear = runner.run("push", trace=few, name="few")
    assert (unclear.code, unclear.outputs["verdict"]) == (0, "cannot-tell")
    assert unclear.log.startswith("::warning file=")
    missing = runner.run("push", trace=str(tmp_path / "nowhere.json"), name="few")
    assert (missing.code, missing.outputs["verdict"]) == (2, "unusable")
    assert len([*(runner.cache / "fusetui/Linux/few").iterdir()]) == 2
    assert runner.run("push", trace=few, name="../few").code == 2


def test_incomplete_trace_becomes_no_baseline(runner: Runner, trace_file: File) -> None:
    path = trace_file(steps=8)
    whole = path.read_bytes()
    path.write_bytes(whole[:-60])
    first = runner.run("push", trace=str(path))
    assert (first.code, first.outputs["verdict"]) == (2, "unusable")
    assert "a.json ends early" in first.log
    assert not runner.cache.exists()
    path.write_bytes(whole)
    assert runner.run("push", trace=str(path)).outputs["verdict"] == "no-baseline"
    (stored,) = runner.cache.glob("*/*/*/*/*.json")
    stored.write_bytes(whole[:-60])  # as an older version stored it
    again = runner.run("push", trace=str(path))
    assert (again.code, again.outputs["verdict"]) == (2, "unusable")
    assert runner.run("push", trace=str(path)).outputs["verdict"] == "passed"


def test_a_baseline_that_is_a_link_is_stored_as_a_file(
    runner: Runner, trace_file: File, tmp_path: Path
) -> None:
    """The target of the link is not there in the next job."""
    target = trace_file("target.json", steps=8)
    link = tmp_path / "newest.json"
    link.symlink_to(target)
    assert runner.run("push", trace=str(link)).outputs["verdict"] == "no-baseline"
    (stored,) = runner.cache.glob("*/*/*/*/*.json")
    assert stored.is_file()
    assert not stored.is_symlink()
    slower = trace_file("slower.json", 2, steps=8)
    assert runner.run("pull_request", trace=str(slower)).outputs["verdict"] == "failed"


def test_a_dangling_link_that_an_older_version_stored_is_reported_and_replaced(
    runner: Runner, trace_file: File
) -> None:
    path = trace_file(steps=8)
    runner.run("push", trace=str(path))
    (stored,) = runner.cache.glob("*/*/*/*/*.json")
    stored.unlink()
    stored.symlink_to("/nowhere/a.json")
    again = runner.run("push", trace=str(path))
    assert "::warning title=fusetui::The stored baseline is a link" in again.log
    assert runner.run("push", trace=str(path)).outputs["verdict"] == "passed"


def test_the_name_of_a_trace_is_no_workflow_command(runner: Runner) -> None:
    outcome = runner.run("push", trace="::add-mask::error")
    assert outcome.code == 2
    messages = [line for line in outcome.log.splitlines() if "add-mask" in line]
    assert messages
    assert not any(line.startswith("::add-mask") for line in messages)
