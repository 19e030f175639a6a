# Everything runs in .venv, under the exact versions of requirements.lock.

PYTHON ?= python3
BUNDLED := hetsched_core/traces/bundled
BIN := .venv/bin
REPORT := build/report
# Exactly this: the wheel of a newer release may be one for CUDA, of several GB.
TORCH := torch==2.13.0
# Those of users; their versions are in requirements-frameworks.lock.
FRAMEWORKS := transformers[torch] lightning jax

.DEFAULT_GOAL := help
.PHONY: help env env-torch replay demo lint test env-frameworks test-slurm test-slurm-stable test-torch test-frameworks test-gpu test-all test-nightly pyz soak soak-gangs \
	soak-mixed soak-month bench check-pages man notices deb test-deb lock clean

help:
	@echo "make env     create or update .venv (again after pyproject.toml or requirements.lock change)"
	@echo "make replay  replay the bundled Slurm log under slurm, fifo, las and steady; report in $(REPORT)"
	@echo "make demo    six jobs placed and moved on a private Slurm (Debian, root)"
	@echo "make test    lint, types, import rules, all tests that need no Slurm, and one that does"
	@echo "make test-slurm  the tests on a real Slurm, which they install privately (Debian, root)"
	@echo "make test-slurm-stable  some of them on the Slurm of Debian's stable release"
	@echo "make test-torch  the tests that need torch, which it installs ($(TORCH))"
	@echo "make test-frameworks  those that need frameworks of users, which it installs ($(FRAMEWORKS))"
	@echo "make test-all    these five; PYTEST_ARGS=... goes to pytest in each"
	@echo "make test-gpu    tests of the executor and the session on a GPU, and the table of switches"
	@echo "make test-nightly  properties with many fresh examples"
	@echo "make pyz     build/hetsched-run.pyz, the launcher of jobs and TrainingSession as one file"
	@echo "make soak    the daemon killed 200 times on a private Slurm; result in docs/live/soak.md"
	@echo "make soak-gangs  30 jobs of uneven and mixed shapes, the daemon killed 20 times"
	@echo "make soak-mixed  500 jobs of all kinds on 64 nodes under steady, hops and fifo"
	@echo "make soak-month  a month of operation: 30,000 jobs made up, 3,000 on a private Slurm; docs/live/month.md"
	@echo "make bench   benchmarks"
	@echo "make check-pages  a sample of every page of docs/reproduction, computed and compared (HETSCHED_DATA)"
	@echo "make man     write the manual pages and docs/policies/what-policies-see.md anew from what they are about"
	@echo "make notices  write THIRD-PARTY.md anew from the metadata of what is installed"
	@echo "make deb     build/deb/hetsched_*.deb, for the Debian that this is (python3-venv)"
	@echo "make test-deb  from the package to placed jobs on bare Debian 12 and 13, as the admin guide has it (Debian, root)"
	@echo "make lock    write requirements.lock anew from the newest versions that fit pyproject.toml"
	@echo "make clean   remove .venv, build, caches and compiled kernels"

env: .venv/.installed

.venv/.installed: pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit("hetsched needs Python 3.11 or later, this is %d.%d: make PYTHON=python3.12 ..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { echo "$(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock --editable '.[dev]'
	@touch $@

replay: env
	@mkdir -p build
	$(BIN)/hetsched replay $(BUNDLED)/sacct.txt --cluster $(BUNDLED)/cluster.toml --tz UTC \
		--policy slurm,fifo,las,steady --report $(REPORT)

demo: env
	$(BIN)/hetsched testbed demo

lint: env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# One more worker than processors: some tests wait.
test: lint
	$(BIN)/python -m pytest -n $$(($$(nproc) + 1)) -m "smoke or not (slurm or pyslurm)" $(PYTEST_ARGS)

# Each worker has clusters of its own, and mostly waits for them. xdist's own order would hand out the
# files of few tests last, which take longest. The smoke test is in `make test`.
test-slurm: env
	$(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder --durations=5 \
		-m "(slurm or pyslurm) and not smoke" $(PYTEST_ARGS)

# What all else rests on, under the Slurm of Debian's stable release, for which there is no pyslurm.
test-slurm-stable: env
	$(BIN)/python -m pytest -n 3 --dist loadfile --slurm 24.11 -m "slurm and not pyslurm" \
		tests/slurm_plugin/backend/test_holding.py tests/slurm_plugin/submit/test_under_the_daemon.py \
		tests/slurm_plugin/testbed/test_testbed.py $(PYTEST_ARGS)

test-all: test test-slurm test-slurm-stable test-torch test-frameworks

test-nightly: env
	HYPOTHESIS_PROFILE=nightly $(BIN)/python -m pytest -n auto -m "not (slurm or pyslurm)" $(PYTEST_ARGS)

env-torch: .venv/.torch-installed

# Into the same environment, which a machine keeps: everything else stays as it is, with or without.
.venv/.torch-installed: .venv/.installed Makefile
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock $(TORCH)
	@touch $@

test-torch: env-torch
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations=5 tests/job_wrappers/torch $(PYTEST_ARGS)

env-frameworks: .venv-frameworks/.installed

# Upon the environment with torch, which stays as it is.
.venv-frameworks/.installed: .venv/.torch-installed requirements-frameworks.lock Makefile
	$(BIN)/python -m venv --clear .venv-frameworks
	@$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
		>"$$(.venv-frameworks/bin/python -c 'import site; print(site.getsitepackages()[0])')/torch.pth"
	.venv-frameworks/bin/python -m pip install --quiet --disable-pip-version-check --constraint requirements.lock \
		--constraint requirements-frameworks.lock $(TORCH) $(FRAMEWORKS)
	@touch $@

test-frameworks: env-frameworks
	.venv-frameworks/bin/python -m pytest -n 2 --dist worksteal --durations=5 tests/job_wrappers/frameworks $(PYTEST_ARGS)

# With the torch that is there, which must see a GPU: `make test-gpu BIN=DIR` takes the
# Python in DIR. The table needs torchvision, torchaudio, transformers and torch-geometric.
GPU_TESTS := test_executor.py test_executor_parts.py test_session.py test_resume.py
test-gpu:
	HETSCHED_DEVICE=cuda $(BIN)/python -m pytest -W default $(GPU_TESTS:%=tests/job_wrappers/torch/%) $(PYTEST_ARGS)
	for mode in running profiling; do \
		$(BIN)/python -m benchmarks.wrapper_cost $$mode --model convolution --device cuda || exit 1; done
	$(BIN)/python -m benchmarks.executor_switch --device cuda --page docs/live/executor.md

# One file that runs in a job without an installation, under Python 3.9 or later.
pyz: build/hetsched-run.pyz

build/hetsched-run.pyz: $(shell find job_wrappers -name '*.py')
	@rm -rf build/pyz && mkdir -p build/pyz
	@cp --parents $^ build/pyz
	$(PYTHON) -m zipapp build/pyz --main job_wrappers.launch.command:run --python '/usr/bin/env python3' --output $@
	@chmod 755 $@
	@rm -rf build/pyz

soak: env
	$(BIN)/python -m tests.slurm_plugin.faults.soak docs/live/soak.md

soak-gangs: env
	$(BIN)/python -m tests.slurm_plugin.faults.gang_kills

soak-mixed: env
	$(BIN)/python -m tests.slurm_plugin.faults.mixed

soak-month: env
	command -v logrotate >/dev/null || apt-get install -qq -y logrotate
	$(BIN)/python -m tests.slurm_plugin.faults.month docs/live/month.md

bench: env
	$(BIN)/python -m pytest benchmarks --benchmark-only $(PYTEST_ARGS)

check-pages: env
	$(BIN)/python -m benchmarks.papers.check

man: env
	$(BIN)/python -m slurm_plugin.cli.manual

notices: env
	$(BIN)/python slurm_plugin/packaging/notices.py >THIRD-PARTY.md

deb:
	slurm_plugin/packaging/deb/build.sh $(PYTHON) build/deb

# In root file systems that are made and forgotten; each release has its own Python, and so its own package.
test-deb: env
	command -v mmdebstrap && command -v systemd-nspawn || apt-get install -qq -y mmdebstrap systemd-container
	rm -rf build/dist && $(BIN)/python -m hatchling build -t sdist -d build/dist
	for suite in bookworm trixie; do \
		slurm_plugin/packaging/deb/try.sh $$suite build/dist/hetsched-*.tar.gz build/deb || exit 1; done

# pip resolves without constraints here, in an environment that holds nothing else.
lock: clean
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(BIN)/python -m pip freeze --exclude-editable >requirements.lock
	@touch .venv/.installed
	@: >requirements-frameworks.lock
	$(MAKE) env-frameworks
	.venv-frameworks/bin/python -m pip freeze --local --exclude pip >requirements-frameworks.lock
	@touch .venv-frameworks/.installed

clean:
	rm -rf .venv .venv-frameworks build dist .benchmarks .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +
