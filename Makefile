# demo    run the demo, then over the wire through each provider's client (installs only what a user needs)
# test    every test, and beside them every gate and the built wheel in a clean environment
# check   every gate: lint format imports contract stubtest mypy fences pyright verifytypes docs-build
# docs    build the documentation into site/
# zensical  build it once more with the theme's successor, into .zensical/
# fix     let ruff repair and format what it can
# bench   run the benchmarks
# torture kill, stop and race processes for some minutes; tests/torture/__main__.py says how to steer it.
#         OVERT_EVERY_DEATH=1 make pytest ARGS=tests/durability leaves no death out that tests take a part of
# real-model  runs with a small real model: compiles llama.cpp, for some minutes, once
# npm     install the programs from npm that tests talk to, and what draws diagrams; `make test` does it
# clean   remove everything that was built
#
# Any gate can be called by its own name: make mypy

BIN := .venv/bin
RUNTIME := .venv/.runtime
CLIENTS := .venv/.clients
REAL := .venv/.real
DEV := .venv/.dev
NODE := .venv/.node
ZENSICAL := .venv/zensical
export NO_MKDOCS_2_WARNING := 1
export DISABLE_MKDOCS_2_WARNING := true
# Type checkers and linters must see this environment, whatever is active outside.
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV MYPYPATH
# Compiled modules are kept: the tests start hundreds of interpreters.
unexport PYTHONDONTWRITEBYTECODE

JOBS ?= 2
# Processes the tests are spread over; 0 runs them in one, as a debugger needs it.
PYTEST_JOBS ?= auto
OUTPUT := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)
GATES := lint format imports contract stubtest mypy fences pyright verifytypes docs-build
# mypy refuses a directory without Python in it.
TYPED := $(shell for d in src tests examples tools benchmarks; do \
	[ -z "$$(find $$d -name '*.py' 2>/dev/null | head -n 1)" ] || echo $$d; done)
PENDING := $(shell grep -cvE '^[[:space:]]*(\#|$$)' stubs/pending.txt)

.PHONY: demo test check checked docs bench torture real-model fix clean env npm pytest wheel zensical $(GATES)
.DELETE_ON_ERROR:

# The clients come when the first part has been seen: they take longer to install than all else.
demo: $(if $(findstring --wire,$(ARGS)),$(CLIENTS),$(RUNTIME))
	@$(BIN)/python -m overt demo $(ARGS)
	@$(if $(strip $(ARGS) $(OVERT_MODEL)),,echo && $(MAKE) --no-print-directory $(CLIENTS) && \
		$(BIN)/python -m overt demo --wire all)

# The gates run beside the tests and fill the time in which those wait.
test: $(DEV) $(NODE)
	@$(MAKE) --no-print-directory checked & gates=$$!; \
	$(MAKE) --no-print-directory pytest; tests=$$?; \
	wait $$gates && exit $$tests

checked:
	@$(MAKE) --no-print-directory check JOBS=1
	@$(MAKE) --no-print-directory wheel

check: $(DEV)
	@$(MAKE) --no-print-directory --keep-going -j$(JOBS) $(OUTPUT) $(GATES)

docs: docs-build

bench: $(RUNTIME)
	@$(BIN)/python benchmarks/run.py $(ARGS)

torture: $(DEV)
	@$(BIN)/python -W error -m tests.torture

real-model: $(CLIENTS) $(if $(OVERT_MODEL),,$(REAL))
	@$(BIN)/python -W error -m tests.real_model

clean:
	rm -rf .venv site docs/assets/vendor .site.lock .zensical .zensical.yml .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage
	find src tests tools examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

env: $(DEV)

npm: $(NODE)

fix: $(DEV)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: $(DEV)
	$(BIN)/python tools/check_wheel.py

pytest: $(DEV) $(NODE)
	$(BIN)/python -m pytest -n $(PYTEST_JOBS) --dist worksteal $(ARGS)

lint: $(DEV)
	$(BIN)/ruff check --quiet .

format: $(DEV)
	$(BIN)/ruff format --quiet --check .

imports: $(DEV)
	$(BIN)/lint-imports --no-cache --no-logo

contract: $(DEV)
	$(BIN)/python tools/contract.py check

# While something is pending its overlooked names are made up afresh; without any, an unused entry fails.
stubtest: $(DEV)
	@mkdir -p .mypy_cache
	$(BIN)/python tools/contract.py allowlist > .mypy_cache/pending.allowlist
	MYPYPATH=stubs $(BIN)/stubtest overt --concise --mypy-config-file tools/mypy-stubtest.ini \
		--allowlist stubs/allowlist.txt --allowlist .mypy_cache/pending.allowlist \
		$(if $(filter-out 0,$(PENDING)),--ignore-unused-allowlist)

mypy: $(DEV)
	$(BIN)/mypy $(TYPED)

# After mypy, whose cache it goes on with; two at once would wait for each other's locks.
fences: mypy
	$(BIN)/python tools/fences.py

pyright: $(DEV)
	$(BIN)/basedpyright --warnings

# It looks for the package on PATH.
verifytypes: $(DEV)
	PATH="$(CURDIR)/$(BIN):$$PATH" basedpyright --verifytypes overt --ignoreexternal

# Nothing to do where it is built already: by a test, or by an earlier call.
docs-build: $(DEV) $(NODE)
	$(BIN)/python -m tools.site_build

# The theme's successor has to build the same pages. It takes as long as the first again, so it is no gate.
zensical: docs-build $(ZENSICAL)
	@{ echo 'site_dir: .zensical'; cat mkdocs.yml; } > .zensical.yml
	$(ZENSICAL)/bin/zensical build --strict -f .zensical.yml
	@rm .zensical.yml

$(RUNTIME): pyproject.toml tools/make-env tools/find-python
	@tools/make-env
	@touch $@

$(CLIENTS): pyproject.toml tools/make-env tools/find-python
	@tools/make-env openai,anthropic,google
	@touch $(RUNTIME) $@

$(REAL): tools/make-real-model | $(CLIENTS)
	@tools/make-real-model
	@touch $@

$(ZENSICAL): pyproject.toml | $(DEV)
	@$(BIN)/python -m venv --clear $@
	@$@/bin/python -m pip install --quiet --disable-pip-version-check zensical 'mkdocstrings[python]' griffe-pydantic ruff

$(DEV): pyproject.toml tools/make-env tools/find-python
	@tools/make-env dev
	@touch $(RUNTIME) $(CLIENTS) $@

# Where it cannot be done the tests that need it are skipped, and the next call tries again; CI fails.
$(NODE): tools/node/package.json tools/npm.py | $(DEV)
	@{ $(BIN)/python -m tools.npm && touch $@; } || [ -z "$$OVERT_REQUIRE_NPM$$CI" ]
