# Everything from a fresh clone, with Python >= 3.11, pip and a C compiler: `make mnist`, `make test`.
# The first run makes a virtual environment in .venv and installs into it; later runs start at once.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV ?= .venv
PYTHON_IN_VENV := $(VENV)/bin/python
INSTALL := $(PYTHON_IN_VENV) -m pip install --quiet --disable-pip-version-check
# `compat` adds the folder to Python's path, where type checkers find it; the default is a hook that they do not run.
EDITABLE := $(INSTALL) --config-settings editable_mode=compat -e ./cuda_emulator -e
# How many tests run at the same time: `make test JOBS=4`, or JOBS=0 for one process.
JOBS ?= $(shell nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
# How many random programs `make fuzz` checks.
SEEDS ?= 2000
# The MPI library of `make ranks`: mpich, or openmpi in an environment of its own for the tests marked `core`.
MPI ?= mpich
# The commit whose generated programs `make frozen` compares with those of the checkout.
BASE ?= HEAD~1
# Further words for the tools: `make test ARGS="-k layering"`, `make bench ARGS="--rows mlp_mnist"`.
ARGS ?=

.PHONY: help mnist test test-all test-full references mutate frozen fuzz lint format bench gpu-check gpu-rehearsal
.PHONY: embedded-check ranks clean

help:
	@echo "make mnist   train on handwritten digits (DATA=folder for the MNIST IDX files)"
	@echo "make test    run the tests"
	@echo "make test-all  also slow tests, PyTorch itself, and CUDA's compiler on the generated kernels (what CI runs)"
	@echo "make test-full  everything, before a release: also what test-all samples (ARRAY_API_TESTS=folder of that suite)"
	@echo "make references  record anew what PyTorch computes for the tests"
	@echo "make mutate  plant faults in a copy, one at a time: some test must see each"
	@echo "make frozen  compare the programs that this checkout and a commit generate (BASE=commit, by default HEAD~1)"
	@echo "make fuzz    check SEEDS random programs, 2000 unless told (eager, C, NumPy, gradients; ARGS=--gpu: regions)"
	@echo "make ranks   run programs on 2 to 4 MPI ranks (MPI=openmpi: its main tests with that library)"
	@echo "make lint    ruff, mypy, import layering"
	@echo "make format  let ruff rewrite the layout of the sources"
	@echo "make bench   measure against PyTorch, JAX and NumPy, and rewrite docs/benchmarks.md"
	@echo "make gpu-check  run everything that a machine with a GPU can prove (ARGS=\"--parts PART\": one part again)"
	@echo "make gpu-rehearsal  a part of it on the emulated device, with the packages of such a machine alone"
	@echo "make embedded-check  build and run exported C99 for an ARM Cortex-M (gcc-arm-none-eabi, qemu-system-arm)"
	@echo "make clean   remove .venv and what the tools left behind"

# ---- what people run ---------------------------------------------------------------------------

mnist: $(VENV)/.installed-examples
	$(PYTHON_IN_VENV) -m examples.mnist.train --seeds 3 $(if $(DATA),--data "$(DATA)") $(ARGS)

test: $(VENV)/.installed-test
	$(PYTHON_IN_VENV) -m pytest -n $(JOBS) $(ARGS)

test-all: $(VENV)/.installed-test-all
	-$(PYTHON_IN_VENV) -m tests.cuda_wheels
	$(PYTHON_IN_VENV) -m pytest -n $(JOBS) --all $(ARGS)

test-full: $(VENV)/.installed-test-all
	-$(PYTHON_IN_VENV) -m tests.cuda_wheels
	$(PYTHON_IN_VENV) -m tests.full --jobs $(JOBS) $(ARGS)

references: $(VENV)/.installed-test-all
	$(PYTHON_IN_VENV) -m tests.torch_reference

mutate: $(VENV)/.installed-test
	$(PYTHON_IN_VENV) -m tests.mutate --jobs $(JOBS) $(ARGS)

frozen: $(VENV)/.installed-test
	PYTHONPATH="$(CURDIR)" $(PYTHON_IN_VENV) tests/frozen since "$(BASE)" $(ARGS)

fuzz: $(VENV)/.installed-test
	$(PYTHON_IN_VENV) -m tests.fuzz --seeds $(SEEDS) --jobs $(JOBS) $(ARGS)

ranks: $(VENV)-$(MPI)/.installed
	STAGED_INTERRUPTIONS=5 $(VENV)-$(MPI)/bin/python -m pytest -m $(if $(filter mpich,$(MPI)),ranks,"ranks and core") tests/ranks $(ARGS)

lint: $(VENV)/.installed-dev
	$(PYTHON_IN_VENV) -m ruff check .
	$(PYTHON_IN_VENV) -m ruff format --check staged cuda_emulator/cuda_emulator
	$(PYTHON_IN_VENV) -m mypy
	$(PYTHON_IN_VENV) -m pytest -q tests/test_layering.py

format: $(VENV)/.installed-dev
	$(PYTHON_IN_VENV) -m ruff check --fix .
	$(PYTHON_IN_VENV) -m ruff format staged cuda_emulator/cuda_emulator

bench: $(VENV)/.installed-bench
	$(PYTHON_IN_VENV) -m benchmarks $(ARGS)

# With the Python that is there, not with .venv: such a machine may have no network, and has PyTorch for its GPU installed.
gpu-check:
	$${PYTHON:-python3} -m tests.gpu_check $(ARGS)

# No plugins of pytest, no click, no rich, no data, and no package index while it runs. After `make test` most programs are in
# the cache of the tests. The limits of the parts are for 16 cores: two cores that do other work need more.
gpu-rehearsal: $(VENV)-device/.installed
	env -u CI -u STAGED_DATA PIP_NO_INDEX=1 PYTHONPATH=$(CURDIR)/cuda_emulator $(VENV)-device/bin/python -m tests.gpu_check --rehearse --slack 4 \
	    $(or $(ARGS),--parts machine first suite)

embedded-check: $(VENV)/.installed-test
	$(PYTHON_IN_VENV) -m tests.embedded_check

clean:
	rm -rf $(VENV) $(VENV)-device $(VENV)-mpich $(VENV)-openmpi build dist *.egg-info cuda_emulator/build cuda_emulator/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

# ---- the virtual environment: one stamp per set of libraries ------------------------------------

$(VENV)/.created:
	@found=; for candidate in "$${PYTHON:-}" python3 python3.13 python3.12 python3.11 python; do \
	    if [ -n "$$candidate" ] && "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        found=$$candidate; break; \
	    fi; \
	done; \
	if [ -z "$$found" ]; then echo "Python 3.11 or newer is needed; name it with PYTHON=/path/to/python3.11 make ..." >&2; exit 1; fi; \
	"$$found" -m venv $(VENV) || { rm -rf $(VENV); echo "no virtual environment could be made; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@touch $@

$(VENV)/.installed-examples: $(VENV)/.created pyproject.toml cuda_emulator/pyproject.toml
	$(EDITABLE) ".[cli,data,plot]"
	@touch $@

$(VENV)/.installed-test: $(VENV)/.created pyproject.toml cuda_emulator/pyproject.toml
	$(EDITABLE) ".[test]"
	@touch $@

$(VENV)/.installed-test-all: $(VENV)/.created pyproject.toml cuda_emulator/pyproject.toml
	$(EDITABLE) ".[test-all]"
	@touch $@ $(VENV)/.installed-test

$(VENV)/.installed-dev: $(VENV)/.created pyproject.toml cuda_emulator/pyproject.toml
	$(EDITABLE) ".[dev,test]"
	@touch $@ $(VENV)/.installed-test

# As on a machine with a GPU (docs/gpu_check.md): its Python is 3.12, and the last four packages come with the clone.
$(VENV)-device/.installed: $(VENV)/.created
	@found=$(PYTHON_IN_VENV); \
	for candidate in python3.12 "$${PYENV_ROOT:-$$HOME/.pyenv}"/versions/3.12*/bin/python3.12; do \
	    if "$$candidate" -c 'import venv' 2>/dev/null; then found=$$candidate; break; fi; \
	done; \
	"$$found" -m venv --clear $(VENV)-device
	$(VENV)-device/bin/python -m pip install --quiet --disable-pip-version-check \
	    numpy scipy scikit-learn safetensors ml_dtypes pytest hypothesis cffi pycparser optree platformdirs
	@touch $@

# Wheels of two MPI libraries have the same commands: each library has its own environment.
$(VENV)-$(MPI)/.installed: $(VENV)/.created pyproject.toml cuda_emulator/pyproject.toml
	$(PYTHON_IN_VENV) -m venv --clear $(VENV)-$(MPI)
	$(VENV)-$(MPI)/bin/python -m pip install --quiet --disable-pip-version-check -e ./cuda_emulator -e ".[test]" $(MPI) mpi4py
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.created pyproject.toml cuda_emulator/pyproject.toml
	$(EDITABLE) ".[bench]"
	@touch $@
