# Every verb prepares .venv for itself; a machine with Python 3.11+, make and PyPI is all it takes.
PYTHON ?= $(shell sh .ci/python)
BIN := .venv/bin
KERNEL := src/millpond/pipeline/libkernel.so
SEED ?=
ONLY ?=
CYCLES ?= 1000
SEEDS ?= 50
BUGS ?=
FASTEST ?= 0
WORLD ?= disk
HOURS ?= 8
SECONDS ?= 60
KILLS ?= 20
MESSAGES ?= 1000000
export PYTHONHASHSEED := 0
unexport PYTHONDONTWRITEBYTECODE  # brokers that tests start would each compile every module anew

.PHONY: help run demo proof test check format bench peers sim sim-night seeds chaos fuzz pipeline-chaos pipeline-failover pipeline-cluster pipeline-connect kernel lock proto clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

run: .venv/.ready  ## start a broker on 127.0.0.1:9092, data in ./millpond-data
	@$(BIN)/millpond up

demo: .venv/.ready  ## a broker, metrics, the pipeline on Spark, and what came of it; ends by itself in a minute or two
	@$(BIN)/millpond pipeline demo

proof: .venv/.ready  ## watch the storage engine prove itself: a million messages, then power cuts
	@$(BIN)/python -m bench.proof

test: .venv/.ready $(KERNEL)  ## everything CI runs
	@sh .ci/checks & checks=$$!; \
	FUZZ_SEED=$(or $(SEED),1) $(BIN)/python -m pytest -n 3 --dist loadscope --no-loadscope-reorder --max-worker-restart 0 --hypothesis-profile same; tests=$$?; \
	wait $$checks || { echo "what .ci/checks found stands above" >&2; exit 1; }; exit $$tests

check: .venv/.ready $(KERNEL)  ## format, lint, types, layers, tidy and the fast tests: under a minute
	@sh .ci/checks
	@$(BIN)/python -m pytest -m "not slow" -n 2

format: .venv/.ready  ## rewrite the source in the one format
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: .venv/.ready $(KERNEL)  ## measure, beside raw system calls and other brokers: make bench [ONLY=storage|broker|cluster|client|http|grpc|queues|delays|pipeline] [WORKS=text]
	@$(BIN)/python -m bench $(ONLY) $(if $(WORKS),--works '$(WORKS)')

peers: .venv/.ready  ## fetch other brokers into bench/.peers, for the bench to stand beside
	@$(BIN)/python -m bench.broker.peers

sim: .venv/.ready  ## simulated bad days of a log, a cluster, a queue, delays: make sim [WORLD=cluster|queue|delays] [SEED=7] [CYCLES=1000] [SEEDS=50]
	@$(BIN)/python -m tests.simulation --world $(WORLD) --cycles $(CYCLES) --seeds $(SEEDS) $(if $(SEED),--seed $(SEED))

sim-night: .venv/.ready  ## simulated clusters, minute after minute, until one breaks a promise: make sim-night [HOURS=8]
	@$(BIN)/python -m tests.simulation --world cluster --hours $(HOURS)

seeds: .venv/.ready  ## for each planted bug a seed that finds it, recorded for the tests: make seeds [BUGS="name world"] [FASTEST=10]
	@$(BIN)/python -m tests.simulation --mutants $(BUGS) --fastest $(FASTEST)

chaos: .venv/.ready  ## three brokers killed, cut off, without power, under load: make chaos [SECONDS=60] [SEED=7]
	@$(BIN)/python -m tests.interop.chaos --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

pipeline-chaos: .venv/.ready  ## the metrics pipeline on Spark under kill -9: make pipeline-chaos [KILLS=20] [MESSAGES=1000000] [SEED=7]
	@$(BIN)/python -m tests.pipeline.chaos --kills $(KILLS) --messages $(MESSAGES) $(if $(SEED),--seed $(SEED))

pipeline-failover: .venv/.ready  ## the exactly-once sink of Spark while leaders and the query are killed: make pipeline-failover [KILLS=20] [SEED=7]
	@$(BIN)/python -m tests.pipeline.failover --kills $(KILLS) $(if $(SEED),--seed $(SEED))

kernel: .venv/.ready $(KERNEL)  ## compile src/millpond/pipeline/kernel.c, if it has changed

$(KERNEL): src/millpond/pipeline/kernel.c hatch_build.py
	@$(BIN)/python hatch_build.py || echo "going on without the compiled kernel" >&2

pipeline-cluster: .venv/.ready  ## the metrics pipeline on a Spark cluster: a master and two workers on this machine
	@MILLPOND_SPARK_CLUSTER=1 $(BIN)/python -m pytest tests/pipeline/test_standalone.py

pipeline-connect: .venv/.ready  ## Spark Connect: a server on this machine, and a client that reads, writes and archives topics
	@MILLPOND_SPARK_CONNECT=1 $(BIN)/python -m pytest tests/pipeline/test_connect.py

fuzz: .venv/.ready  ## frames that lie, to a broker of their own, others every time: make fuzz [SEED=7]
	@$(BIN)/python -m tests.fuzz $(if $(SEED),--seed $(SEED))

lock:  ## write requirements.lock anew (needs uv)
	uv pip compile --universal --python-version 3.11 --generate-hashes --extra spark --group dev --no-header -o requirements.lock pyproject.toml

proto: .venv/.ready  ## write the Python of the gRPC door's .proto files anew
	@sh .ci/proto

clean:  ## remove what the verbs made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist bench/results bench/.peers $(KERNEL)

.venv/.ready: requirements.lock pyproject.toml
	@sh .ci/setup $(PYTHON)
	@touch $@
