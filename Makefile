# Everything that a developer or CI runs. `make demo` and `make test` set up whatever they need.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

VENV   := .venv
PYTHON := $(VENV)/bin/python
TARGET := $(shell rustc -vV 2>/dev/null | sed -n 's/^host: //p')
# What is built for use: `quick` within minutes, `release` optimised as a whole (`make build PROFILE=release`).
PROFILE := quick
AGENT = target/$(TARGET)/$(PROFILE)/leadline-agent
INSTALL_AGENT = cmp -s $(AGENT) $(VENV)/bin/leadline-agent || install -m 755 $(AGENT) $(VENV)/bin/leadline-agent
# The agent that the tests use: built with the Rust tests, in one profile. It stays where cargo puts it, so that what is
# installed in .venv/bin is what measures.
CHECKED := target/$(TARGET)/checked/leadline-agent
# One static file, so that copying it to a host is the whole installation. With --target the flag stays away from build
# scripts and procedural macros, which cannot be static.
STATIC := CARGO_BUILD_TARGET=$(TARGET) RUSTFLAGS="-C target-feature=+crt-static"
# What the tests of `leadline http` run it against, and beside.
HTTP_SERVERS := nginx-light haproxy apache2-bin nodejs tinyproxy openssl wrk
# What a stack's tiers are, beside those.
STACK := redis-server
# What its figures are compared with, and what speaks to it: an iperf3 of others on both ends.
PEERS := iperf3 apache2-utils nghttp2-client
# Systems under test beside OpenVPN: strongSwan with its plugins, wireguard-go; `ip` tries what the kernel has.
GATEWAYS := charon-systemd strongswan-swanctl libcharon-extra-plugins libcharon-extauth-plugins libstrongswan-extra-plugins \
  libstrongswan-standard-plugins wireguard-go wireguard-tools iproute2

# Python keeps what it has compiled: the tests start `leadline` hundreds of times.
unexport PYTHONDONTWRITEBYTECODE

PYTHON_CODE := python tests bench scripts contract setup.py
# Modules of one name, so each is checked by itself.
MYPY = $(PYTHON) -m mypy && find tests -mindepth 2 -name conftest.py -print0 | xargs -0 -n 1 $(PYTHON) -m mypy --no-error-summary
FUZZ_SECONDS := 30
DIST := dist

.PHONY: help man build build-checked agent agents openvpn demo picture emulated-agent check check-style check-rust check-python test test-all test-rust test-unit test-python test-exclusive test-tools lint format bench truths dist fuzz contract reference lock clean system-packages

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 16

# Downloads wait for the network, and the compiler for a CPU.
build: ## the `leadline` command and its agent, in .venv/bin
	@$(MAKE) --no-print-directory --jobs=2 $(VENV)/.installed agent PROFILE=$(PROFILE)
	@$(INSTALL_AGENT)

agent:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.85 or newer" >&2; exit 2; }
	@$(STATIC) python3 scripts/build_agent.py $(PROFILE)

# Hosts of these architectures get their agent from here; the name is the one that `uname -m` prints.
OTHER_ARCHITECTURES = $(filter-out $(shell uname -m),x86_64 aarch64)
# Where Rust's library for another architecture comes from: `rustup` adds it, or `debian`'s compiler is unpacked below target.
RUST := rustup

agents: build ## the same, and an agent for hosts of the other architecture: aarch64, or x86_64; RUST=debian without rustup
	@for architecture in $(OTHER_ARCHITECTURES); do \
	  built=$$(RUST=$(RUST) scripts/cross_agent $$architecture $(PROFILE)); \
	  install -m 755 $$built $(VENV)/bin/leadline-agent-$$architecture; \
	done

build-checked: ## the agent that the tests use, whose arithmetic is checked; it is not installed
	@$(STATIC) cargo build --profile checked --quiet --package leadline-agent

$(VENV)/.installed: requirements-run.lock pyproject.toml scripts/uv
	@test -x $(PYTHON) || scripts/uv venv --quiet --python-preference only-system $(VENV)
	@echo "installing the Python packages of $< into $(VENV)" >&2
	@scripts/uv pip install --quiet --python $(PYTHON) --require-hashes -r $<
	@LEADLINE_WITHOUT_AGENT=1 scripts/uv pip install --quiet --python $(PYTHON) --no-deps --no-build-isolation -e .
	@touch $@

# What the tests and linters need beside it is downloaded by them alone: 36 MB of scipy, 53 MB of polars and more.
$(VENV)/.tools: $(VENV)/.installed requirements.lock
	@scripts/uv pip install --quiet --python $(PYTHON) --require-hashes -r requirements.lock
	@touch $@

# What is tested in an environment of its own: `leadline record`, because mitmproxy holds packages back that the rest of the
# tests have newer; `leadline fleet`, with libcloud and a server that answers as EC2 does; hosts of a Ray cluster, because
# Ray is larger than all else together.
EXTRAS := record cloud ray
$(EXTRAS:%=$(VENV)-%/.installed): $(VENV)-%/.installed: requirements-%.lock pyproject.toml scripts/uv | $(VENV)/.installed
	@test -x $(@D)/bin/python || scripts/uv venv --quiet --python-preference only-system $(@D)
	@scripts/uv pip install --quiet --python $(@D)/bin/python --require-hashes -r $<
	@LEADLINE_WITHOUT_AGENT=1 scripts/uv pip install --quiet --python $(@D)/bin/python --no-deps --no-build-isolation -e .
	@touch $@

demo: ## three gateways side by side on hosts made here: set-up, then `leadline demo`
	@$(MAKE) --no-print-directory --jobs=3 $(VENV)/.installed agent openvpn
	@$(INSTALL_AGENT)
	$(VENV)/bin/leadline demo

openvpn:
	@scripts/packages openvpn

# As README shows it: the first screen of the newest run of the demo, on a machine that did nothing else.
picture: ## docs/images/report.png, from the newest run of the demo
	@scripts/packages chromium
	chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --force-device-scale-factor=1 --window-size=1100,800 \
	  --screenshot=docs/images/report.png "file://$$(ls -d "$$PWD"/runs/*-gateway-*/report.html | tail -n 1)"

check: $(VENV)/.tools ## in a minute: linters, types, tests of the Rust libraries, and the Python tests that start no process
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check-python check-style check-rust

check-style:
	$(VENV)/bin/ruff format --check --quiet $(PYTHON_CODE)
	$(VENV)/bin/ruff check --quiet $(PYTHON_CODE)
	cargo fmt --all --check
	$(MYPY)

# Of the whole workspace, so that dependencies have the same features, and are compiled once, for `make test` too.
check-rust:
	$(STATIC) cargo test --profile checked --quiet --workspace --lib $(LIBRARY_TESTS:%=--test %)

check-python:
	LEADLINE_AGENT=none $(PYTHON) -m pytest --quiet $(UNIT_WORKERS) -m "not agent and not processes $(SELECTION)" tests/unit tests/contract

test test-all test-unit test-python test-exclusive: export LEADLINE_AGENT := $(abspath $(CHECKED))

# What is compiled and what is installed do not wait for each other; nor do Python's tests for the Rust tests' compiler: a
# load that runs for a second leaves half of it to the compiler.
test: ## every kind of test: Rust, Python, contract, lab, browser; of matrices a selection
	@$(MAKE) --no-print-directory --jobs=3 build-checked $(VENV)/.tools $(EXTRAS:%=$(VENV)-%/.installed) test-tools
	$(MAKE) --no-print-directory --jobs=3 test-rust test-unit test-python
	$(MAKE) --no-print-directory test-exclusive

test-all: ## the same with every combination, and searches to their end
	@scripts/packages qemu-system-x86 busybox-static maven default-jdk-headless $(shell command -v go >/dev/null || echo golang-go)
	@$(MAKE) --no-print-directory emulated-agent
	$(MAKE) --no-print-directory test SELECTION=

# The agent for aarch64 and the emulator that runs it; what is missing is named, and its tests are skipped. It is newer than
# the agent of this machine: one that is older may be of older sources.
emulated-agent: build-checked
	@scripts/packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross
	@scripts/packages --unpack target/qemu-user qemu-user-static
	@built=$$(RUST=$(if $(shell command -v apt-get),debian,rustup) scripts/cross_agent aarch64 checked) && touch $$built || [ $$? = 2 ]

test-tools:
	@scripts/packages openvpn openssh-client linux-perf chromium chromium-driver $(HTTP_SERVERS) $(STACK) $(PEERS) $(GATEWAYS) tshark
	@scripts/packages --unpack target/sshd openssh-server libwrap0

# No test is in documentation. The agent's tests wait for timeouts and for the end of loads: that is why 8 run side by side,
# and beside Python's.
test-rust:
	@$(STATIC) cargo test --profile checked --quiet --workspace --lib --bins --tests --no-run
	RUST_TEST_THREADS=8 $(STATIC) cargo test --profile checked --quiet --no-fail-fast --workspace --lib --bins --tests

# The libraries' integration tests; `observe` and `sys` have others, which read the machine's own figures.
LIBRARY_TESTS := all corpus golden
# These tests wait: for loads to end, for servers, for timeouts; so several run side by side. tests/conftest.py says
# which of them stay together and which begin first. Those whose truth needs a CPU to themselves run after them, alone.
WAITING_TESTS := tests/browser tests/dist tests/docs tests/lab tests/oracle
TEST_WORKERS := 10
WORKERS = -n $(TEST_WORKERS) --dist loadgroup --no-loadscope-reorder
UNIT_WORKERS = $(WORKERS) -n auto
SELECTION := and not full_matrix

test-python:
	$(STATIC) $(PYTHON) -m pytest --quiet $(WORKERS) -m "not exclusive $(SELECTION)" $(WAITING_TESTS)

# The others wait for nothing, and are thousands, which each worker collects: as many workers as CPUs.
test-unit:
	$(STATIC) $(PYTHON) -m pytest --quiet $(UNIT_WORKERS) -m "not exclusive $(SELECTION)" $(WAITING_TESTS:%=--ignore=%) tests

test-exclusive:
	$(STATIC) $(PYTHON) -m pytest --quiet -m "exclusive $(SELECTION)" tests/lab tests/oracle || [ $$? = 5 ]

dist: $(VENV)/.installed ## what users install: a wheel, an sdist and the agent alone, in DIST=dist
	$(STATIC) scripts/dist $(PYTHON) $(DIST)

lint: $(VENV)/.tools ## ruff, mypy --strict, clippy and rustfmt, warnings as errors
	$(VENV)/bin/ruff format --check $(PYTHON_CODE)
	$(VENV)/bin/ruff check $(PYTHON_CODE)
	$(MYPY)
	cargo fmt --all --check
	$(STATIC) cargo clippy --profile checked --quiet --workspace --all-targets -- -D warnings

format: build $(VENV)/.tools ## format all code
	$(VENV)/bin/ruff format $(PYTHON_CODE)
	$(VENV)/bin/ruff check --fix $(PYTHON_CODE)
	cargo fmt --all

bench: PROFILE := release
bench: build $(VENV)/.tools ## side by side with peers; writes docs/benchmarks.md. ONLY="rr http" runs some rows, AGAINST=AGENT an older agent
	@scripts/packages openvpn nginx-light iperf3 wrk apache2-utils nghttp2-client maven netsniff-ng tcpreplay
	$(PYTHON) bench/run.py $(ONLY:%=--only %) $(AGAINST:%=--against %)

truths: PROFILE := release
truths: build ## known truths against Leadline and its peers; writes docs/truths.md
	@scripts/packages wrk $(PEERS)
	$(PYTHON) scripts/truths_page.py docs/truths.md

fuzz: ## random bytes for each parser that reads from the network, FUZZ_SECONDS=30 apiece
	@cargo fuzz --version >/dev/null 2>&1 || cargo install --locked cargo-fuzz
	@for target in $$(cargo +nightly fuzz list); do \
	  mkdir -p fuzz/work/$$target; \
	  cargo +nightly fuzz run $$target fuzz/work/$$target fuzz/corpus/$$target -- \
	    -max_total_time=$(FUZZ_SECONDS) -max_len=4096 -timeout=10 -rss_limit_mb=1024; \
	done

contract: $(VENV)/.tools ## renew the schema and the models after a change in crates/wire
	$(STATIC) PYTHON=$(PYTHON) contract/generate.sh

reference: $(VENV)/.installed ## renew docs/reference after a change of options or of findings.json
	$(VENV)/bin/typer leadline.cli.app utils docs --name leadline --output docs/reference/commands.md >/dev/null
	$(PYTHON) scripts/findings_reference.py docs/reference

# man(1) looks beside each folder of PATH: with .venv/bin in it, `man leadline-tcp` finds these.
man: $(VENV)/.installed ## man pages of the command and its subcommands, in .venv/share/man
	$(PYTHON) scripts/man_pages.py $(VENV)/share/man

LOCK := scripts/uv pip compile --quiet --universal --python-version 3.11 --no-header --no-emit-index-url --generate-hashes
# The others have the versions of the first, as far as mitmproxy allows.
lock: ## renew requirements.lock and, of what `make build`, `leadline record`, `leadline fleet` and Ray's driver install, the others
	$(LOCK) --extra parquet --group dev pyproject.toml -o requirements.lock
	cp requirements.lock requirements-run.lock
	$(LOCK) --group build pyproject.toml -o requirements-run.lock
	cp requirements.lock requirements-record.lock
	$(LOCK) --extra record --group build pyproject.toml -o requirements-record.lock
	cp requirements.lock requirements-cloud.lock
	$(LOCK) --extra cloud --group build --group cloud-tests pyproject.toml -o requirements-cloud.lock
	cp requirements.lock requirements-ray.lock
	$(LOCK) --extra ray --group build pyproject.toml -o requirements-ray.lock

clean: ## remove what was built
	rm -rf target $(VENV) $(EXTRAS:%=$(VENV)-%) .venv-uv build $(DIST)
