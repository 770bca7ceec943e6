# Targets set up .venv themselves if they need it. `make` alone lists the targets, from the comments after `##`.
SHELL := /bin/sh
.DEFAULT_GOAL := help

VENV_PYTHON := .venv/bin/python
VENV_INPUTS := pyproject.toml requirements/build.lock tools/make_venv.sh

.PHONY: release help venv demo test check lint format docs linkcheck notebooks bench interop soak fuzz fuzz-coverage flips wheel test-install test-lowest compat lock clean

help: ## this list
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{ printf "make %-13s %s\n", $$1, $$2 }'

venv: .venv/.made ## the virtual environment .venv, from pinned and hashed packages

.venv/.made: $(VENV_INPUTS) requirements/dev.lock
	@tools/make_venv.sh .venv requirements/dev.lock
	@touch $@

.venv-lowest/.made: $(VENV_INPUTS) requirements/lowest.lock
	@tools/make_venv.sh .venv-lowest requirements/lowest.lock
	@touch $@

# The whole environment takes minutes to install; where there is one, the demo uses it.
DEMO_VENV := $(if $(wildcard .venv/.made),.venv,.venv-demo)

.venv-demo/.made: $(VENV_INPUTS) requirements/demo.lock
	@tools/make_venv.sh .venv-demo requirements/demo.lock
	@touch $@

demo: $(DEMO_VENV)/.made ## a commit log as a DataFrame; STORE=path reads your own (nothing is written or locked)
	@$(DEMO_VENV)/bin/python -m pyspark_commitlog.demo $(if $(STORE),"$(STORE)")

test: venv ## every check: format, lint, types, imports, docs, tests, notebooks, lowest, wheel, bench
	@$(VENV_PYTHON) tools/run_checks.py

check: venv ## for work in progress, in a minute or two: the checks that only read the code, and a quick part of the tests
	@$(VENV_PYTHON) tools/run_checks.py format lint quick types imports docs

lint: venv ## the checks that only read the code: format, lint, types, imports, docs
	@$(VENV_PYTHON) tools/run_checks.py format lint types imports docs

format: venv ## rewrite the code as ruff formats it, with its safe fixes
	@.venv/bin/ruff check --quiet --fix-only .
	@.venv/bin/ruff format .

docs: venv ## write the generated documents, and build the site in docs/_build/html
	@$(VENV_PYTHON) tools/generate_docs.py

linkcheck: venv ## try the documents' links to other sites, over the network
	@$(VENV_PYTHON) tools/generate_docs.py --links

notebooks: venv ## execute the notebooks in place, and draw the pictures of the README; NOTEBOOKS="01 03" selects some
	@$(VENV_PYTHON) tools/run_notebooks.py $(NOTEBOOKS)
	@$(VENV_PYTHON) tools/draw_images.py

bench: venv ## all benchmarks, in one run; BENCH_ARGS="..." is passed on
	@$(VENV_PYTHON) tests/benchmarks/run.py $(BENCH_ARGS)

interop: venv ## the tests against a real RocketMQ (needs Maven and Java)
	@$(VENV_PYTHON) -m pytest tests/interop -m ""

soak: venv ## the property tests with a larger budget, and long campaigns, one beside a broker (needs Maven and Java)
	@$(VENV_PYTHON) -m pytest -m "not interop" --hypothesis-profile=soak --timeout=0

fuzz: venv ## mutated input for every decoder; BUDGET=cases SEED=number TARGETS="..." select
	@$(VENV_PYTHON) -m tests.fuzz.campaign --budget $(or $(BUDGET),1000000) --seed $(or $(SEED),1) $(TARGETS)

# Beside the environment, because nothing else needs it. IDLE=1: only time that nobody else wants.
.venv-fuzz/.made: requirements/fuzz.lock .venv/.made
	@$(VENV_PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --upgrade \
		--target .venv-fuzz -r requirements/fuzz.lock
	@touch $@

fuzz-coverage: .venv-fuzz/.made ## inputs that reach new code are mutated further; BUDGET_SECONDS PROCESSES SEED IDLE=1 select
	@PYTHONPATH=.venv-fuzz $(VENV_PYTHON) -m tests.fuzz.guided.campaign --seconds $(or $(BUDGET_SECONDS),600) \
		--processes $(or $(PROCESSES),2) --seed $(or $(SEED),1) $(if $(IDLE),--idle)

flips: venv ## every bit of golden segments, flipped one at a time; STORES="..." EVERY=number select
	@$(VENV_PYTHON) -m tests.fuzz.bit_flips --every $(or $(EVERY),1) $(STORES)

wheel: venv ## the wheel, in dist/
	@$(VENV_PYTHON) -m hatchling build --target wheel --directory dist

release: venv ## the wheel, built twice, with its bill of materials and an audit of its dependencies; RELEASE_ARGS=--no-audit without network
	@$(VENV_PYTHON) -m tools.release $(RELEASE_ARGS)

test-install: venv ## install the wheel with its newest dependencies into an empty environment, and read with it
	@$(VENV_PYTHON) tools/check_wheel.py --dependencies fetch

test-lowest: .venv-lowest/.made ## the tests on the lowest dependencies that pyproject.toml allows; TESTS="..." selects some
	@# PySpark 4.1 leaves closing its sockets to the garbage collector.
	@.venv-lowest/bin/python -m pytest -W "ignore:unclosed <socket:ResourceWarning" $(TESTS)

compat: venv ## a slice of the tests on PySpark 4.1 to 4.3 and the Pythons 3.11 to 3.13 found here; CELLS="3.12/4.2" selects some
	@$(VENV_PYTHON) tools/compat.py $(CELLS)

lock: ## update requirements/*.lock to the newest versions
	@tools/lock.sh

clean: ## remove environments, caches and built files
	@rm -rf .cache .venv .venv-demo .venv-lowest .venv-lock .venv-release dist .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
