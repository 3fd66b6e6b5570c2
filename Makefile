PYTHON ?= python3
# The releases to test with; without any, the newest ones.
CONSTRAINTS ?= constraints.txt
VENV := .venv
BIN := $(VENV)/$(if $(filter Windows_NT,$(OS)),Scripts,bin)
DEMO := $(VENV)/demo
INSTALLED := $(VENV)/installed
KERNELS := $(VENV)/kernels
# The pip that is there saves one in the new environment, if it is recent enough to install elsewhere.
HAS_PIP = $(shell $(PYTHON) -c "import pip; print('yes' * (int(pip.__version__.split('.')[0]) > 22))" 2>/dev/null)
PIP = $(if $(HAS_PIP),$(PYTHON) -m pip --python $(BIN)/python,$(BIN)/python -m pip) --disable-pip-version-check -qq

.PHONY: install demo demo-distributed notebooks docs linkcheck exports lint types quick pytest test test-all release-check faults bench records clean

install: $(INSTALLED)

# What the demo needs, without bytecode of what nothing imports. torch first and pinned: else pip takes the newest
# release with all its CUDA packages.
$(DEMO): pyproject.toml $(CONSTRAINTS)
	test -x $(BIN)/python || $(PYTHON) -m venv $(if $(HAS_PIP),--without-pip) $(VENV)
	$(PIP) install --no-compile $(addprefix -c ,$(CONSTRAINTS)) torch
	$(PIP) install --no-compile $(addprefix -c ,$(CONSTRAINTS)) -e .
	touch $@

# The rest, and pip for the tests.
$(INSTALLED): $(DEMO)
	$(PIP) install $(addprefix -c ,$(CONSTRAINTS)) pip -e ".[test,docs]"
	touch $@

demo: $(DEMO)
	$(BIN)/python examples/wordnet_sage.py

demo-distributed: install
	$(BIN)/torchrun --standalone --nproc-per-node 2 -m examples.wordnet_parts

# All of them, or with ONLY=03 those whose names begin so.
notebooks: install
	$(BIN)/python tutorials/build_notebooks.py $(ONLY)

docs: install
	$(BIN)/python -m docs.builder build/docs

# Asks other sites for the pages that ours link to, so it needs a network.
linkcheck: docs
	$(BIN)/python -m sphinx --quiet -b linkcheck -c docs -D linkcheck_retries=3 build/docs/sources/pages build/linkcheck

# Adds what packages import to their `__all__`.
exports: install
	$(BIN)/python -m tests.repository.fill_exports

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports

types: install
	$(BIN)/mypy

# Else each interpreter that tests start compiles the whole package to bytecode anew, where the environment says so.
unexport PYTHONDONTWRITEBYTECODE

PYTEST := $(BIN)/pytest -n auto --dist worksteal

# Before the first run: otherwise, each worker rewrites the assertions of all test files.
tests/__pycache__: | install
	$(BIN)/pytest --collect-only -q > /dev/null || true  # errors are shown by the run

# Once, and after a change to kernels: otherwise, each process that runs tests compiles those that it lacks.
$(KERNELS): $(INSTALLED) $(shell find graphfeed/ops/cpu -name "*.py") graphfeed/ops/random.py
	$(BIN)/graphfeed warm-up
	touch $@

quick: lint tests/__pycache__ $(KERNELS)
	$(PYTEST) -q -m "not slow and not compile and not thorough and not release" --hypothesis-profile=quick

pytest: install tests/__pycache__ $(KERNELS)
	$(PYTEST) -m "not thorough and not release"

test: lint
	$(MAKE) -j2 types pytest

# What `make test` leaves out, and other examples of what it tried. `make test test-all` runs each test once.
test-all: test
	$(PYTEST) -m "(thorough or hypothesis) and not release" --hypothesis-profile=random --timeout 900

# With TAG=v1.2.3 also whether CHANGELOG.md has the date of that version.
release-check: install
	RELEASE_TAG=$(TAG) $(BIN)/pytest tests/repository/test_release.py

# Puts faults into copies of the repository, whose tests have to find them; with ONLY=time those with that in their name.
faults: install
	$(BIN)/python -m tests.faults $(ONLY)

bench: install
	for what in peers sampling small_calls gather loader first_use cold cache channels distributed cuda gpu_cache; do \
		$(BIN)/python -m benchmarks $$what || exit 1; \
	done

# What README and the site show, in some forty minutes of a machine that does nothing else. GRAPHFEED_PEERS names Pythons
# with GraphBolt and PyG, as benchmarks/peers.py explains, and GRAPHFEED_DATA a folder of real graphs, as benchmarks/real.py
# does. With ONLY=cold, that record alone.
RECORDS := peers epoch pyg cores memory typed cold larger_than_memory distributed gather profile
OPTIONS_peers := --repeats 10
OPTIONS_epoch := --repeats 5
OPTIONS_pyg := --repeats 10
OPTIONS_distributed := --repeats 5
records: $(addprefix record-,$(or $(ONLY),$(RECORDS)))
	$(BIN)/python -m docs.builder.figures
record-%: install
	$(BIN)/python -m benchmarks $* $(OPTIONS_$*) --json docs/measured/$*.json

clean:
	rm -rf $(VENV) build dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
