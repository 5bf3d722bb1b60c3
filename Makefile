# `make` alone prints what there is.  Everything runs from a bare clone with python3 and Java 17.

PY := .venv/bin/python
STAMP := .venv/.millpond-dev
RUN_STAMP := .venv/.millpond-run

.DEFAULT_GOAL := help
.PHONY: help setup lock check test slow coverage sim chaos cluster fuzz python-versions docs demo bench bench-nexmark bench-latency bench-recovery bench-soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP) ## create .venv with everything from the lock and this project, editable

lock: ## resolve the dependencies again: uv.lock, and the same pins for pip in requirements.lock and requirements-dev.lock
	uv lock
	uv export -q --no-emit-project --no-annotate --no-header -o requirements.lock
	uv export -q --all-extras --no-emit-project --no-annotate --no-header -o requirements-dev.lock

check: $(STAMP) ## formatting, lint, types and unit tests
	@bash scripts/suites.sh check

test: $(STAMP) ## all that must pass, with fixed seeds: check, then every test that is not marked slow
	@bash scripts/suites.sh

slow: $(STAMP) ## the tests that are too slow for `make test`: more seeds, larger inputs
	$(PY) -m pytest -q -m slow -n 2 --dist worksteal --ignore=tests/chaos --ignore=tests/spark tests
	$(PY) -m pytest -q -m slow tests/spark

coverage: $(STAMP) ## lines of src that the unit and SQL tests run: a table by package; `coverage report -m` lists the lines
	$(PY) -m coverage erase
	$(PY) -m coverage run -m pytest -q -m "not slow" -n 2 tests/unit tests/sql
	$(PY) -m coverage combine -q
	@$(PY) -m coverage json -q -o - | $(PY) scripts/coverage_table.py

sim: $(STAMP) ## the seeded crash simulator over 2000 seeds
	MILLPOND_SIM_SEEDS=2000 $(PY) -m pytest -q tests/sim

chaos: $(STAMP) ## workers, executors and the driver killed on a small real cluster, 20 times in a row
	MILLPOND_CHAOS_ROUNDS=$${MILLPOND_CHAOS_ROUNDS:-20} $(PY) -m pytest -q -s tests/chaos

cluster: $(STAMP) ## a Spark standalone cluster with an S3 server: run a pipeline, break things, compare views and sinks with batch
	$(PY) -m tests.chaos.standalone

fuzz: $(STAMP) ## random tests with fresh seeds: properties against oracles, thousands of queries (FIRST=seed repeats a run)
	@first=$${FIRST:-$$(( $$(date +%s) % 1000000 * 1000 ))}; echo "seeds from $$first on (repeat with: make fuzz FIRST=$$first)"; \
	MILLPOND_FRESH_SEEDS=1 MILLPOND_ORACLE_SEEDS=25 MILLPOND_ORACLE_FIRST=$$first $(PY) -m pytest -q tests/oracle tests/unit && \
	MILLPOND_FUZZ_CASES=500 MILLPOND_FUZZ_FIRST=$$first $(PY) -m pytest -q -s tests/sql/test_fuzz.py && \
	MILLPOND_EXPRESSIONS=2000 MILLPOND_EXPRESSIONS_SEED=$$first $(PY) -m pytest -q tests/dialects/test_postgres_expressions.py && \
	MILLPOND_BEAM_TRANSCRIPTS=200 MILLPOND_BEAM_FIRST=$$first $(PY) -m pytest -q tests/beam/test_live.py

python-versions: ## the tests of process steps and operators on every Python we support (PYTHONS="3.12 3.13"), each in .venv-VERSION
	@bash scripts/python_versions.sh $(PYTHONS)

docs: $(STAMP) ## write what is generated of the docs anew: the list of unsupported SQL
	$(PY) tests/docs/unsupported.py

demo: $(RUN_STAMP) ## run the main job from end to end, one to two minutes once Millpond is installed
	@.venv/bin/millpond demo

bench: $(STAMP) ## measure, with ratios against peers from the same run
	$(PY) -m benchmarks

bench-nexmark: $(STAMP) ## the queries of Nexmark against Flink, Spark and DuckDB; hours: see benchmarks/README.md
	$(PY) -m benchmarks nexmark $(ARGS)

bench-latency: $(STAMP) ## age of the newest event in a committed view at fixed rates, against Flink and Spark
	$(PY) -m benchmarks latency $(ARGS)

bench-recovery: $(STAMP) ## kill -9 to the first new result, with 1 M and 10 M keys, against Flink and Spark
	$(PY) -m benchmarks recovery $(ARGS)

bench-soak: $(STAMP) ## an hour under disorder and late rows: memory, disk and epoch time flat, or not
	$(PY) -m benchmarks soak $(ARGS)

clean: ## remove everything that make and the tests created
	rm -rf .venv .venv-* .bench build dist spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -type d -name __pycache__ -prune -exec rm -rf {} +

$(STAMP): pyproject.toml uv.lock requirements-dev.lock
	@bash scripts/setup.sh dev

$(RUN_STAMP): pyproject.toml uv.lock requirements.lock
	@bash scripts/setup.sh run
