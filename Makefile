# One list of commands for people and for CI. `make` alone prints it.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test controls elsewhere soak lint format bench engine guest docs lock wheel wheels image clean

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

.venv/installed: requirements/dev.txt pyproject.toml tools/guest_image_hook.py
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "evalcell needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Name another: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "Installing locked dependencies into .venv ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@echo "Installing evalcell; the first time this builds the guest image, about half a minute ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation --no-deps --editable .
	@$(BIN)/python -m compileall -q -j 0 .venv/lib runtime sandboxes evaluators # where nobody is allowed to later
	@touch $@

demo: .venv/installed ## Set up, then score the example dataset in the sandbox
	$(BIN)/evalcell run examples/json_distance.py --data examples/extraction.jsonl

PYTEST := $(BIN)/python -m pytest -n 3 --dist loadfile # several at a time
test: .venv/installed ## Set up, then run the tests on the usual engine
	$(PYTEST) -m "not elsewhere and not control"

controls: .venv/installed ## Show that every attack of the catalogue succeeds where there is no wall
	$(BIN)/python -m pytest -n 3 -m control

elsewhere: .venv/installed ## Run the tests that need Podman, gVisor or evalcell's own image
	$(PYTEST) -m elsewhere

soak: .venv/installed ## Repeat the tests that kill and interrupt at random, hundreds of times
	$(BIN)/python -m pytest -m soak --soak --timeout 1800

lint: .venv/installed ## Check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/deno fmt --check --quiet
	$(BIN)/deno lint --quiet
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed ## Format the code and apply safe fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/deno fmt --quiet

bench: .venv/installed ## Measure rows/s, start-up and memory against baselines (a quarter of an hour)
	$(BIN)/python -m benchmarks

engine: ## Find a container engine to test against, or start one of our own; print its address
	@tools/test-engine start

guest: .venv/installed ## Build and compile the guest image if its sources changed
	$(BIN)/python -c 'from evalcell_sandboxes import sandbox; sandbox("wasm").prepare(None, lambda step, fraction=None: print(step))'

docs: .venv/installed ## Make the page of settings from the models that define them
	$(BIN)/python tools/settings-page > docs/settings.md

LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --quiet
lock: .venv/installed ## Resolve the dependencies anew: for development, for the build, for evalcell's own image
	$(LOCK) pyproject.toml --group dev --upgrade --output-file requirements/dev.txt
	$(LOCK) --group pyproject.toml:build --constraints requirements/dev.txt --output-file requirements/build.txt
	$(LOCK) pyproject.toml --extra arrow --extra container --extra deno --constraints requirements/dev.txt \
	  --output-file requirements/image.txt

wheel: .venv/installed ## Build the wheel, guest image inside, into dist/
	$(BIN)/python -m build --wheel --no-isolation

BASE ?= python:3.12-slim
image: ## Build evalcell's own image; BASE names what it stands on
	docker build --build-arg BASE=$(BASE) --tag evalcell .

IMAGE_PYTHON ?= 3.12
IMAGE_MACHINE ?= $(shell uname -m)
WHEELS ?= wheels
wheels: .venv/installed ## Collect what the image is built from, for a build without network; IMAGE_PYTHON is the base's
	rm -rf $(WHEELS)
	$(BIN)/python -m pip download --quiet --disable-pip-version-check --dest $(WHEELS) --require-hashes --only-binary :all: \
	  --implementation cp --python-version $(IMAGE_PYTHON) \
	  $(foreach libc,2_17 2_27 2_28 2_31 2_34 2_35,--platform manylinux_$(libc)_$(IMAGE_MACHINE)) \
	  --platform manylinux2014_$(IMAGE_MACHINE) -r requirements/build.txt -r requirements/image.txt

clean: ## Remove what the other commands made here (not the user's cache)
	tools/test-engine stop --purge
	rm -rf .engine .venv dist build wheels .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
