# Everything runs in .venv, made from the lock files; PYTHON picks the interpreter (3.11 or newer).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test lint types unit check-deploy coverage slow chaos bench redis-server promtool rabbitmq lock clean

help:            ## list what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/run.stamp: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "paceline needs Python 3.11 or newer; set PYTHON=python3.12, say")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps -e .
	@$(BIN)/python -c "import paceline.producer.cli, paceline.sim, paceline.worker.entry"  # nothing more is needed to run
	@touch $@

$(VENV)/dev.stamp: $(VENV)/run.stamp requirements-dev.lock
	$(BIN)/python -m pip install --quiet -r requirements-dev.lock
	@touch $@

demo: $(VENV)/run.stamp      ## run the example's 200 rows on an embedded server, two workers and the simulator; OTLP=http://… takes its traces
	cd examples/oncall && $(if $(OTLP),OTEL_EXPORTER_OTLP_ENDPOINT=$(OTLP)) ../../$(BIN)/paceline run agent.yaml --input rows.jsonl --output .paceline/results.jsonl \
	  --workers 2 --simulate playbook.yaml --force $(DEMO_ARGS)

test: lint types unit check-deploy    ## everything that needs no network but package registries

lint: $(VENV)/dev.stamp      ## style and the import rule
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache

types: $(VENV)/dev.stamp     ## mypy, strict
	$(BIN)/mypy

unit: $(VENV)/dev.stamp redis-server    ## the test suite, but for the deployment files
	$(BIN)/python -m pytest -n 3 --dist loadfile --ignore tests/deploy

check-deploy: $(VENV)/tools.stamp promtool    ## image, Compose file, chart, rules and dashboards, by the tools that will read them
	$(BIN)/python -m pytest -n 2 --dist loadfile tests/deploy

# 95 MB, once. Exit code 3: they cannot be had or run here; then the tests are left out, but not in CI.
$(VENV)/tools.stamp: tests/deploy/prepare.py | $(VENV)/dev.stamp
	$(BIN)/python tests/deploy/prepare.py $(VENV)/tools && touch $@ || test $$? = 3

coverage: $(VENV)/tools.stamp redis-server promtool    ## the test suite, and which lines it does not reach; a good minute slower
	$(BIN)/coverage run -m pytest
	$(BIN)/coverage report --skip-covered --sort=cover

slow: $(VENV)/dev.stamp redis-server rabbitmq   ## the few tests that take their time (chaos mutants, idle runs, failover without durability, RabbitMQ)
	$(BIN)/python -m pytest -m slow

RUNS ?= 2000
SECONDS ?= 180
SEED ?= 1
chaos: $(VENV)/dev.stamp     ## a long chaos run: RUNS, SECONDS, SEED
	PYTHONPATH=tests $(BIN)/python -m chaos --runs $(RUNS) --seconds $(SECONDS) --seed $(SEED) $(CHAOS_ARGS)

redis-server:    ## Redis 7 for the contract suite, where apt-get may install it
	@command -v redis-server >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update >/dev/null \
	       && apt-get -qq install -y --no-install-recommends redis-server >/dev/null 2>&1; } \
	  || echo "redis-server cannot be installed here: its part of the contract suite is left out, Valkey's is run"

promtool:        ## Prometheus and promtool for the tests of rules and dashboards, where apt-get may install them
	@command -v promtool >/dev/null \
	  || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get -qq update >/dev/null \
	       && apt-get -qq install -y --no-install-recommends prometheus >/dev/null 2>&1; } \
	  || echo "prometheus cannot be installed here: the tests of rules and dashboards that need it are left out"

rabbitmq:        ## RabbitMQ for its own test, where apt-get may install it
	@test -x /usr/lib/rabbitmq/bin/rabbitmq-server || apt-get -qq install -y --no-install-recommends rabbitmq-server

bench: $(VENV)/dev.stamp     ## cost ratios, measured in one run
	$(BIN)/python -m bench

lock: $(VENV)/dev.stamp      ## refresh the lock files from pyproject.toml
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --universal --python-version 3.11 --no-header --no-annotate -U -o requirements.lock
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --no-header --no-annotate \
	  -c requirements.lock -o requirements-dev.lock

clean:           ## remove the environment and what runs left behind
	rm -rf $(VENV) .paceline examples/*/.paceline .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
