# make demo       capture the MLP eager and compiled on this machine, then open both side by side
# make test       run the test suite, without the few tests marked as slow
# make test-all   run these, too
# make budget     measure what each part of the tests takes of the processor
# make corpus     make the traces that tests use, as the first run of the tests does
# make check      check lint, format and types, as .ci/run does before the tests
# make dist       build sdist and a pure wheel, check both, and install the wheel alone; with FUSETUI_URL=https://...
#                 the metadata name this repository, as in a release
# make docs       build the site of the documentation in build/docs; a warning is an error
# make notebook   execute docs/notebook.ipynb again
# make pictures   redraw the pictures of the documentation
# make questions  write docs/questions.md from the traces in the folder FUSETUI_TRACES
# make lessons    write the lessons anew, byte for byte
# make benchmarks measure all tables of the documentation again, from the traces in FUSETUI_TRACES
# make wheels     download what a machine without a network needs beside its torch into build/wheels; with
#                 WHEELS_PYTHON=3.13 or WHEELS_ARCH=aarch64 for another one
# make fuzz       try hostile inputs: KIND=reader (or app, zip, nsys, ...; fuzz/__main__.py lists them) for SECONDS=60,
#                 with SEED=7 the same ones again; inputs that fail are saved, and CONTRIBUTING.md says what to do with them
# make sanitize   compare the compiled scanner with Python under AddressSanitizer and UndefinedBehaviorSanitizer
#                 (gcc); RUNS=100000 for more inputs than 2,000
# make workflows  check the files of .github with check-jsonschema and zizmor
# make coverage   all tests once more, with the share of lines that they run in build/coverage.md
# make lowest     install the oldest versions of the dependencies that pyproject.toml allows
# make compare-release  reading and answers beside the last release, in build/compared.md
# make locked     the tools of development as requirements-dev.lock pins them, without torch
# make lock       write requirements-dev.lock anew, with uv
# make reference  regenerate what docs/ takes from the code: reference.md, files.md and more

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PYTHON3 = $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)
# Tests wait for processes and terminals: more of them than cores keep these busy.
WORKERS = $(shell $(BIN)/python -P -c 'import os; print(max(3, 3 * (os.cpu_count() or 1) // 2))')
MAKEFLAGS += --no-print-directory

.PHONY: demo test check dist docs notebook pictures questions lessons benchmarks reference wheels locked lock clean

# Exit code 1: one variant failed, as compiled does without a C++ compiler; the other one is shown.
demo: $(VENV)/.capture
	@run=runs/demo-$$(date +%Y%m%d-%H%M%S) \
	&& { $(BIN)/fusetui capture mlp --variant eager --variant compiled --out $$run \
		|| [ $$? -eq 1 ]; } \
	&& if [ -t 1 ]; then $(BIN)/fusetui open $$run; else $(MAKE) report RUN=$$run; fi \
	&& printf '%s\n' "" "This run is $$run. To open it again, or any trace of yours:" \
		"    $(BIN)/fusetui $$run" "    $(BIN)/fusetui TRACE" \
		"After . $(BIN)/activate, fusetui alone is enough."

.PHONY: report
report:
	@for variant in eager compiled; do \
		echo; $(BIN)/fusetui summary $(RUN)/$$variant.json.gz || exit; done
	@echo
	@$(BIN)/fusetui diff $(RUN)

# pytest rewrites the assertions of a file once and keeps the result, as Python does with its
# code: also where the environment says not to write it, or each worker takes ten seconds longer.
test: $(VENV)/.dev
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -P -m pytest --numprocesses $(WORKERS) --dist worksteal

.PHONY: test-all
test-all: $(VENV)/.dev
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -P -m pytest -m "not dist" --numprocesses $(WORKERS) --dist worksteal

.PHONY: budget
budget: $(VENV)/.dev
	@$(BIN)/python -P tests/budget.py

.PHONY: corpus
corpus: $(VENV)/.dev
	@$(BIN)/python -P tests/corpus

check: $(VENV)/.dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/mypy --explicit-package-bases tests fuzz benchmarks docs
	@$(BIN)/lint-imports --no-cache

dist: $(VENV)/.dev
	@rm -rf dist
	@FUSETUI_PURE=1 $(BIN)/python -m build --no-isolation --outdir dist . >dist.log 2>&1 || { cat dist.log; exit 1; }
	@rm dist.log
	@$(BIN)/twine check --strict dist/*
	@$(BIN)/check-wheel-contents dist/*.whl
	@$(BIN)/python -P -m pytest -m dist tests/packaging

docs: $(VENV)/.dev
	@rm -rf build/docs
	@$(BIN)/python -P -m sphinx --quiet --fail-on-warning --fresh-env -c docs -d build/doctrees . build/docs
	@echo build/docs/index.html

KIND = reader
SECONDS = 60
SEED =
.PHONY: fuzz
fuzz: $(VENV)/.dev
	@$(BIN)/python -P fuzz --kind $(KIND) --seconds $(SECONDS) $(addprefix --seed ,$(SEED))

RUNS = 2000
SANITIZED = build/sanitized
SANITIZERS = -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g -O1
.PHONY: sanitize
sanitize: $(VENV)/.dev
	@rm -rf $(SANITIZED)
	@CC=gcc CFLAGS="$(SANITIZERS)" LDFLAGS="$(SANITIZERS)" $(BIN)/python -P setup.py --quiet build_ext \
		--build-lib $(SANITIZED) --build-temp $(SANITIZED)/objects
	@LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libubsan.so)" \
		ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
		FUSETUI_SCANNER=$$(ls $(SANITIZED)/fusetui/trace/read/scan.*.so) \
		$(BIN)/python -P fuzz --kind scanner --jobs 1 --runs $(RUNS)

# Tools of these targets alone, which no test needs.
$(VENV)/.ci: $(VENV)/.dev
	@$(PIP) install --editable '.[ci]'
	@touch $@

WORKFLOWS = $(wildcard .github/workflows/*.yml)
.PHONY: workflows
workflows: $(VENV)/.ci
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows $(WORKFLOWS)
	@$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	@$(BIN)/zizmor --offline --quiet .github

.PHONY: coverage
coverage: $(VENV)/.ci
	@mkdir -p build && rm -f build/coverage.md
	@$(BIN)/python -P -m pytest -m "not dist" --numprocesses $(WORKERS) --dist worksteal \
		--cov fusetui --cov-report markdown-append:build/coverage.md

# Without --upgrade, uv keeps what is installed already. Newer releases of pandas, which only tests
# need, refuse the oldest numpy.
.PHONY: lowest
lowest: $(VENV)/.ci
	@$(BIN)/uv pip install --quiet --upgrade --python $(BIN)/python --resolution lowest-direct --editable . 'pandas>=2.2.3'

RELEASE = $(shell git describe --tags --abbrev=0 --match 'v*' 2>/dev/null)
.PHONY: compare-release
compare-release: $(VENV)/.dev
	@$(BIN)/python -P benchmarks/compare_release.py --release '$(RELEASE)' --out build/compared.md

notebook: $(VENV)/.dev
	@$(BIN)/python -P docs/make_notebook.py

pictures: $(VENV)/.dev
	@$(BIN)/python -P docs/pictures.py

questions: $(VENV)/.dev
	@$(BIN)/python -P docs/questions.py

lessons: $(VENV)/.dev
	@$(BIN)/python -P docs/lessons

benchmarks: $(VENV)/.dev
	@$(BIN)/python -P benchmarks $(ONLY)

reference: $(VENV)/.dev
	@$(BIN)/python -P docs/make_reference.py
	@$(BIN)/python -P docs/make_map.py
	@$(BIN)/python -P docs/make_schemas.py
	@$(BIN)/python -P docs/make_stability.py

WHEELS_PYTHON := 3.12
WHEELS_ARCH := x86_64
wheels: $(VENV)/.made
	@$(BIN)/python -P benchmarks/wheels.py --python $(WHEELS_PYTHON) --arch $(WHEELS_ARCH) --out build/wheels

# Hashes of all that is installed; torch and triton are those of the machine.
locked: $(VENV)/.made
	@$(PIP) install --require-hashes --requirement requirements-dev.lock
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $(VENV)/.capture $(VENV)/.dev

lock:
	@uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --no-emit-package triton \
		--generate-hashes --no-annotate --custom-compile-command "make lock" --quiet --upgrade \
		--output-file requirements-dev.lock

clean:
	rm -rf $(VENV) build dist src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The stamps say that an installation is complete and up to date.
$(VENV)/.dev: $(VENV)/.capture
	@echo "installing the development tools"
	@if $(BIN)/python -P -c 'import triton' 2>/dev/null; \
	then $(PIP) install --editable '.[dev]'; \
	else $(PIP) install --editable '.[dev]' --constraint constraints.txt; fi
	@touch $@

# An installed torch or triton is used, because a GPU machine needs its own build. pip compiles what it installs,
# but not an editable install, which would otherwise be compiled at every start. compileall does not
# follow the links in src.
$(VENV)/.capture: $(VENV)/.made pyproject.toml setup.py $(wildcard src/fusetui/trace/*/*.c) constraints.txt
	@echo "installing fusetui and what capture needs"
	@if $(BIN)/python -P -c 'import torch' 2>/dev/null; \
	then $(PIP) install --editable '.[capture]'; \
	else $(PIP) install --editable '.[capture]' --constraint constraints.txt; fi
	@$(BIN)/python -m compileall -q src capture kernels sample_traces tui
	@touch $@

# A working .venv is kept. Inside another virtual environment, --system-site-packages does not include
# the packages of that environment, so a path file is added for its torch.
$(VENV)/.made:
	@test -n "$(PYTHON3)" || { echo "fusetui needs Python 3.11 or newer: install it," \
		"or name it with make PYTHON3=/path/to/python" >&2; exit 2; }
	@if $(BIN)/python -P -m pip --version >/dev/null 2>&1; then :; \
	elif torch=$$($(PYTHON3) -P -c \
		'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' 2>/dev/null); \
	then $(PYTHON3) -m venv --system-site-packages $(VENV) \
		&& { $(BIN)/python -P -c 'import torch' 2>/dev/null \
		|| echo "$$torch" > $$(echo $(VENV)/lib/python3*/site-packages)/outer.pth; }; \
	else $(PYTHON3) -m venv $(VENV); fi
	@touch $@
