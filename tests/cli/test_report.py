"""Reports: their figures are those of --json, and a browser gets nothing from a trace
but text."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.corpus.files import corpus_path
from tests.hostile import PAYLOADS, obeyed, write_trace

from fusetui.commands.sources import one_trace
from fusetui.commands.web.html import read_asset

Run = Callable[..., Any]
EAGER, COMPILED = "lesson:mlp-eager", "lesson:mlp-compiled"
MARKUP = "</td></title></svg><script>alert(1)</script><img src=x onerror='alert(2)'>&lt;b&gt;"
ELEMENTS = [
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "header",
    "nav",
    "a",
    "h1",
    "h2",
    "h3",
    "p",
    "strong",
    "main",
    "section",
    "div",
    "table",
    "caption",
    "thead",
    "tbody",
    "tfoot",
    "tr",
    "th",
    "td",
    "button",
    "data",
    "ol",
    "li",
    "br",
    "span",
    "figure",
    "figcaption",
    "ul",
    "svg",
    "path",
    "rect",
    "output",
    "footer",
    "script",
]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
Row = list[tuple[str, str | None]]


class Page(HTMLParser):
    """Every element with its attributes, the text of scripts, and of each table the
    rows: the text of each cell and its exact value."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[tuple[str, list[Row]]] = []
        self.texts: Counter[str] = Counter()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag in ("meta", "br", "path"):
            return
        self.open.append(tag)
        if tag == "caption":
            self.tables.append(("", []))
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in ("th", "td"):
            self.tables[-1][1][-1].append(("", None))
        elif tag == "data":
            self.tables[-1][1][-1][-1] = "", dict(attrs)["value"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "caption" in self.open:
            self.tables[-1] = self.tables[-1][0] + data, self.tables[-1][1]
        elif {"th", "td"} & {*self.open}:
            text, value = self.tables[-1][1][-1][-1]
            self.tables[-1][1][-1][-1] = text + data, value
        elif self.open:
            self.texts[data] += 1

    def rows(self, caption: str, at: int = 0) -> list[dict[str, Any]]:
        """Of the table whose caption begins so: by column the exact value, else the
        text."""
        found = [rows for title, rows in self.tables if title.startswith(caption)][at]
        heads = [text for text, _ in found[0]]
        return [
            {
                head: text if value is None else float(value)
                for head, (text, value) in zip(heads, row, strict=True)
            }
            for row in found[1:]
        ]


def reported(fusetui: Run, folder: Path, *words: str) -> str:
    out = folder / "out.html"
    told = fusetui("report", *words, str(out))
    assert told.code == 0, told.err
    return out.read_text(encoding="utf-8")


def test_figures_of_a_report_are_those_of_json(fusetui: Run, tmp_path: Path) -> None:
    page = Page(reported(fusetui, tmp_path, EAGER, COMPILED))
    for at, name in enumerate((EAGER, COMPILED)):
        why = fusetui("why", name, "--json").json
        (device,) = why["devices"]
        account = {
            next(iter(row.values())): row
            for row in page.rows("Where the time went", at)
        }
        assert account["compute"]["span"] == device["compute_ns"]
        assert account["idle"]["span"] == device["idle_ns"]
        reasons = [
            row["span"] for what, row in account.items() if what.startswith("idle, ")
        ]
        assert Counter(reasons) + Counter() == Counter(
            float(n) for n in device["idle"].values()
        )
        assert account["idle"]["of span"] == device["idle_ns"] / device["span_ns"]
        assert all(one["text"] in " ".join(page.texts) for one in why["findings"])
        kernels = fusetui("kernels", name, "--json", "--top=0").json["kernels"]
        told = [
            (row["name"][:40], row["total"], row["count"])
            for row in page.rows("kernels:", at)
        ]
        assert told == [
            (one["name"][:40], one["total_ns"], one["count"]) for one in kernels
        ]
        gaps = fusetui("gaps", name, "--json", "--all").json["gaps"]
        shown = [(row["start"], row["dur"]) for row in page.rows("gaps:", at)]
        assert shown == [(one["start_ns"], one["dur_ns"]) for one in gaps]
        modules = fusetui("modules", name, "--json", "--top=0").json["modules"]
        assert [row["gpu"] for row in page.rows("modules:", at)] == [
            m["gpu_ns"] for m in modules
        ]


def test_the_changes_are_those_of_json(fusetui: Run, tmp_path: Path) -> None:
    page = Page(reported(fusetui, tmp_path, EAGER, COMPILED))
    diff = fusetui("diff", EAGER, COMPILED, "--json").json
    rows = page.rows("Changes of a step")
    by_kind = Counter[str]()
    for row in diff["rows"]:
        by_kind[row["kind"]] += row["b_ns"] - row["a_ns"]
    for kind in ("fused", "added", "removed", "same"):
        assert (
            sum(row["change"] for row in rows if row["kind"] == kind) == by_kind[kind]
        )
    assert rows[-1]["change"] == diff["accounting"]["step_ns"]
    added = [row["change"] for row in rows[:-1] if "CPU: " not in row["what"]]
    assert sum(added) == diff["accounting"]["step_ns"]
    sides = {row["figure"]: (row["A"], row["B"]) for row in page.rows("Both sides")}
    assert sides["a step (wall)"] == (diff["step_ns"]["a"], diff["step_ns"]["b"])
    for name, what in (("busy_ns", "busy"), ("idle_ns", "idle"), ("cpu_ns", "CPU")):
        assert sides[what] == tuple(diff["sides"][side][name] for side in "ab")


def test_slices_lie_where_the_file_has_them(fusetui: Run, tmp_path: Path) -> None:
    """By its raw events."""
    page = Page(reported(fusetui, tmp_path, EAGER))
    with gzip.open(one_trace(EAGER)) as file:
        events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X"]
    begin = min(event["ts"] for event in events)
    span = max(event["ts"] + event["dur"] for event in events) - begin
    drawn = [
        [float(str(attributes[name])) for name in ("x", "width")]
        for tag, attributes in page.elements
        if tag == "rect"
    ]
    kernels = [event for event in events if event["cat"] == "kernel"]
    assert len(kernels) == 15
    for event in kernels:
        there = [end / span * 4000 for end in (event["ts"] - begin, event["dur"])]
        assert any(one == pytest.approx(there, abs=0.1) for one in drawn)


def test_a_name_is_nothing_but_text(fusetui: Run, tmp_path: Path) -> None:
    """The only script is ours, the policy allows no other, and nothing is loaded."""
    a = write_trace(
        tmp_path / "a<b>.json", [MARKUP, "long" * 50_000, *PAYLOADS.values()]
    )
    text = reported(
        fusetui, tmp_path, str(a), str(write_trace(tmp_path / "b.json", [MARKUP]))
    )
    assert obeyed(text) == set()
    assert len(text.encode()) < 1_000_000
    page = Page(text)
    assert not page.open
    assert {tag for tag, _ in page.elements} <= {*ELEMENTS}
    assert sum(tag == "script" for tag, _ in page.elements) == 1
    script = read_asset("page.js")
    assert f"<script>{script}</script>" in text
    names = {name for _, attributes in page.elements for name in attributes}
    assert not names & {"src", "style", "srcset", "action", "xlink:href"}
    links = [
        attributes["href"] for _, attributes in page.elements if "href" in attributes
    ]
    assert all(str(link).startswith("#") for link in links)
    assert not [name for name in names if name.startswith("on")]
    (policy,) = re.findall(
        r'http-equiv="Content-Security-Policy" content="([^"]*)"', text
    )
    own = b64encode(sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{own}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert any(
        MARKUP in cell for _, rows in page.tables for row in rows for cell, _ in row
    )


def stays_below_a_megabyte(fusetui: Run, folder: Path, trace: Path) -> None:
    text = reported(fusetui, folder, str(trace))
    assert len(text.encode()) < 1_000_000
    assert str(trace.parent) not in text


def test_report_stays_below_a_megabyte(fusetui: Run, tmp_path: Path) -> None:
    stays_below_a_megabyte(fusetui, tmp_path, corpus_path("training"))


def test_a_reader_of_screens_finds_its_way(fusetui: Run, tmp_path: Path) -> None:
    """Every table has a caption, every head a scope, every drawing and button a
    name."""
    text = reported(fusetui, tmp_path, EAGER, "--light")
    page = Page(text)
    assert '<html lang="en">' in text
    assert '<meta name="color-scheme" content="light">' in text
    assert all(title and rows for title, rows in page.tables)
    assert all(
        attributes.get("scope") for tag, attributes in page.elements if tag == "th"
    )
    assert all(
        attributes.get("aria-label")
        for tag, attributes in page.elements
        if tag == "svg"
    )
    levels = [int(tag[1]) for tag, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert max(b - a for a, b in pairwise(levels)) <= 1


@pytest.mark.parametrize("names", [(EAGER,), (EAGER, COMPILED)])
def test_contents_of_a_report_lead_to_every_heading(
    fusetui: Run, tmp_path: Path, names: tuple[str, ...]
) -> None:
    page = Page(reported(fusetui, tmp_path, *names))
    links = [attributes["href"] for tag, attributes in page.elements if tag == "a"]
    anchors = [
        attributes["id"] for tag, attributes in page.elements if tag in ("h2", "h3")
    ]
    assert links == [f"#{anchor}" for anchor in anchors]
    assert len({*links}) == len(links) > len(names)
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len({*ids}) == len(ids)


def test_every_button_and_head_has_a_name(fusetui: Run, tmp_path: Path) -> None:
    text = reported(fusetui, tmp_path, EAGER, COMPILED)
    buttons = re.findall(r"<button([^>]*)>([^<]*)</button>", text)
    assert len(buttons) == text.count("<button")
    assert all(
        "aria-label=" in attributes or label.strip() for attributes, label in buttons
    )
    heads = [cell for _, rows in Page(text).tables for cell, _ in rows[0]]
    assert all(head.strip() for head in heads)


def test_tables_and_lanes_of_a_report_scroll_in_their_own_box(
    fusetui: Run, tmp_path: Path
) -> None:
    """A table or the lanes, whose width does not follow that of the window."""
    text = reported(fusetui, tmp_path, EAGER, COMPILED)
    elements = Page(text).elements
    wide = 0
    for (tag, around), (inner, attributes) in pairwise(elements):
        if inner == "table" or attributes.get("class") == "lanes":
            wide += 1
            assert (tag, around.get("class")) == ("div", "scrolls")
    assert wide == text.count("<table>") + text.count('class="lanes"') > 0
    assert ".scrolls{overflow-x:auto" in text


def test_a_table_says_what_it_leaves_out(
    fusetui: Run, tmp_path: Path, event: Callable[..., Any]
) -> None:
    """GPU time of no module stands below that table, and nothing where all of it is in
    one."""
    said = ": outside modules"
    assert said not in reported(fusetui, tmp_path, EAGER)
    events = [
        event("part", 0, 9, cat="user_annotation"),
        event("cudaLaunchKernel", 1, 2, cat="cuda_runtime", args={"correlation": 1}),
        event("cudaLaunchKernel", 20, 2, cat="cuda_runtime", args={"correlation": 2}),
        event("inside", 30, 4, cat="kernel", pid=0, tid=7, args={"correlation": 1}),
        event("outside", 40, 6, cat="kernel", pid=0, tid=7, args={"correlation": 2}),
    ]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))
    (tmp_path / "out.html").unlink()
    text = reported(fusetui, tmp_path, str(tmp_path / "t.json"))
    assert f"6 us of GPU time (60 %, 1 kernel){said}" in text


IN_THE_BROWSER = """<img src="nowhere"><script>addEventListener("load", () => {
  const tables = [...document.querySelectorAll("table")];
  const table = tables.find((one) => one.caption.textContent.startsWith("kernels"));
  const exact = (row) => row.cells[0].querySelector("data").value;
  const told = () => [...table.tBodies[0].rows].map(exact).join();
  const said = [told()], head = table.tHead.querySelector("button");
  for (let n = 0; n < 2; n++) { head.click(); said.push(told()); }
  const figure = document.querySelector("figure"), svg = figure.querySelector("svg");
  for (const name of ["in", "in", "right"]) figure.querySelector(`button[value=${name}]`).click();
  said.push(svg.getAttribute("viewBox"), figure.querySelector(".ruler span").textContent);
  document.title = said.join("|");
});</script>"""


@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")
def test_report_sorts_and_zooms_in_a_browser(fusetui: Run, tmp_path: Path) -> None:
    """Nothing is said on its console; a table is sorted, and the timeline zooms."""
    text = reported(fusetui, tmp_path, EAGER)

    def browse(page: str) -> tuple[str, str]:
        """The document after its scripts, and what the browser said of it."""
        (tmp_path / "page.html").write_text(page, encoding="utf-8")
        words = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
        ]
        words += [
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            "--window-size=900,900",
        ]
        command = [str(CHROMIUM), *words, f"file://{tmp_path / 'page.html'}"]
        run = subprocess.run(
            command, capture_output=True, text=True, timeout=100, check=True
        )
        return run.stdout, "\n".join(re.findall(r".*CONSOLE.*", run.stderr))

    shown, said = browse(text)
    assert said == ""
    assert '<span class="name' in shown  # our script has run
    free = re.sub(r"script-src '[^']*'", "script-src 'unsafe-inline'", text)
    shown, said = browse(free.replace("</body>", f"{IN_THE_BROWSER}</body>"))
    assert "default-src 'none'" in said  # of the image: what is refused would be seen
    (title,) = re.findall(r"<title>([^<]*\|[^<]*)</title>", shown)
    first, down, up, box, ruler = title.split("|")
    figures = [*map(int, first.split(","))]
    assert [*map(int, down.split(","))] == sorted(figures, reverse=True)
    assert [*map(int, up.split(","))] == sorted(figures)
    assert box.split()[0:3:2] == ["1750", "1000"]
    span = fusetui("summary", EAGER, "--json").json["span_ns"]
    assert ruler == f"{span * 1750 / 4000 / 1000:.0f} us"


@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")
def test_a_phone_does_not_scroll_sideways(fusetui: Run, tmp_path: Path) -> None:
    """The page, in a frame of 360 pixels, is no wider than that."""
    text = reported(fusetui, tmp_path, EAGER, COMPILED)
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    (tmp_path / "phone.html").write_text(
        '<iframe src="page.html" width="360" height="640" style="border:0"></iframe><script>'
        'addEventListener("load", () => { const inner = frames[0].document.documentElement;'
        "document.title = inner.scrollWidth + '|' + inner.clientWidth; });</script>"
    )
    words = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--allow-file-access-from-files",
    ]
    words += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    command = [str(CHROMIUM), *words, f"file://{tmp_path / 'phone.html'}"]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=True
    )
    ((wide, seen),) = re.findall(r"<title>(\d+)\|(\d+)</title>", run.stdout)
    assert 0 < int(wide) <= int(seen) <= 360
