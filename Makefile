PYTHON ?= python3
PIP_FLAGS ?=
BIN := .venv/bin
RUN := runs/demo
NEW := xlnet
SMALL := transformer:layers=2,width=64,heads=4,sequence=32,batch=8,vocabulary=1000
UNSEEN := rnnlm:layers=5,steps=14,hidden=2560,batch=256

RIVALS := annealing,genetic,hill_climbing,random,metis,metis:default=true,kahip,heft,peft,m_etf,m_sct,m_topo,$\
	human_expert,single_device,round_robin,gpipe:micro_batches=1,pipedream,max_load_dp

# for gpu-check: the device, cuda:0 or cpu, and its name in the catalogue
DEVICE ?= cuda:0
KIND ?= $(if $(filter cpu,$(DEVICE)),server-cpu,h100)
# several GPUs for gpu-check, as in cuda:0,cuda:1
DEVICES ?=
DATA ?=  # a folder of measured profiles, for studies
PROFILES = $(if $(strip $(DATA)),--data $(DATA))

.PHONY: setup demo test slow checked mutants bench gpu-check graphs rivals study measured pictures site clean

setup: .venv/installed

.venv/installed: pyproject.toml constraints.txt
	@echo "1 of 3: an environment in .venv"
	$(PYTHON) -m venv .venv
	@echo "2 of 3: packages, some of them large: minutes, most of which go into downloads"
	$(BIN)/python -m pip install --disable-pip-version-check $(PIP_FLAGS) -c constraints.txt -e '.[dev]'
	@echo "3 of 3: compiling the simulator and the searches: half a minute"
	$(BIN)/python -m evaluation.commands.compile_all
	@touch $@
	@echo "Done. $(BIN)/placelab says what to do first."

demo: setup  ## place a model of a family that the released policy never saw; run a small one; train, evaluate, fine-tune, report
	rm -rf $(RUN)
	mkdir -p runs
	$(BIN)/placelab place $(NEW) --cluster p100:devices=4 --placer default --out runs/$(NEW).plan.json
	$(BIN)/placelab simulate $(NEW) runs/$(NEW).plan.json --cluster p100:devices=4 --gantt runs/$(NEW).html > /dev/null
	@echo "Every op and transfer of that step: runs/$(NEW).html"
	$(BIN)/placelab place $(SMALL) --cluster p100:devices=2 --placer metis --out runs/small.plan.json > /dev/null
	$(BIN)/placelab run $(SMALL) runs/small.plan.json --cluster p100:devices=2 --devices cpu,cpu
	$(BIN)/placelab compare $(NEW) --clusters p100:devices=4 --budget 1000 --placers default,metis,heft,human_expert,single_device
	$(BIN)/placelab train sequential --out $(RUN) --seed 0 --set ppo.updates=500
	$(BIN)/placelab evaluate $(RUN) --workers 2
	$(BIN)/placelab finetune $(RUN) $(UNSEEN) --cluster p100:devices=4 --simulations 1000
	$(BIN)/placelab report $(RUN)

test: setup  ## style, types, tests
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder

slow: setup  ## long tests, and tests of drawn examples with all of them: hours
	$(BIN)/pytest -n 2 -m "slow or hypothesis or drawn" --hypothesis-profile thorough

checked: setup  ## the tests of compiled code, with every index of its buffers checked: an hour
	$(BIN)/python -m tests.checked_indices

mutants: setup  ## 300 small faults, each tried on the tests that call its function: hours; resumes if stopped
	mkdir -p runs
	$(BIN)/python -m tests.mutants.run runs/mutants.jsonl --count 300 --processes 2

bench: setup  ## speed, as ratios to peers measured in the same run: bench.json
	$(BIN)/python -m tests.benchmarks.run bench.json

gpu-check: setup  ## on a machine with a GPU, minutes: kernels, steps, memory, copies, placements, measured and predicted
	$(BIN)/python -m evaluation.gpu_check --device $(DEVICE) --kind $(KIND) $(if $(filter cpu,$(DEVICE)),--small) \
		$(if $(DEVICES),--devices $(DEVICES)) --out runs/gpu_check.json; code=$$?; \
		$(BIN)/python -m evaluation.gpu_check.page runs/gpu_check.json runs/gpu_check.md && exit $$code

graphs: setup  ## capture every configuration that papers name, in full
	$(BIN)/python -m evaluation.reporting.published_models

rivals: setup  ## every placer on GDP's and Placeto's problems, 2,000 simulations each; run again, it resumes
	mkdir -p runs
	$(BIN)/placelab compare --suite gdp12,placeto --groups 500 --budget 2000 --workers 2 --journal runs/rivals.jsonl \
		--placers $(RIVALS)

study: setup  ## the released policy, regimes, scaling, kinds of plans, published plans: hours; resumes if stopped
	$(BIN)/python -m evaluation.studies.released --out runs/studies/released --workers 2 $(PROFILES)
	$(BIN)/python -m evaluation.studies.regimes --out runs/studies/regimes
	$(BIN)/python -m evaluation.studies.scaling --out runs/studies/scaling
	$(BIN)/python -m evaluation.studies.plan_kinds --out runs/studies/plan_kinds
	$(BIN)/python -m evaluation.studies.published --out runs/studies/published $(PROFILES)

measured: setup  ## published measurements of steps on GPUs, predicted: half an hour; DATA=FOLDER has them
	$(BIN)/python -m evaluation.studies.measured --out runs/studies/measured $(PROFILES)
	cp runs/studies/measured/step_errors.toml evaluation/records/

pictures: setup  ## those of the README and of docs/
	$(BIN)/python -m evaluation.studies.pictures

site: setup  ## docs/ as a site, in site/
	$(BIN)/mkdocs build --strict

clean:
	rm -rf .venv runs site .mypy_cache .ruff_cache .pytest_cache .hypothesis
