# From a fresh machine with Rust, Node and Python: `make demo` shows the main job, `make test` proves it.

CARGO ?= cargo
VANCE_TEST_CACHE ?= $(HOME)/.cache/vancetope-test
export VANCE_TEST_CACHE

.PHONY: help demo dev build test lint nextest unit nightly bench components all-components fuzz

help:
	@echo "make demo     a task tree over a Brain, two Feet and real MCP servers, live in the terminal"
	@echo "make dev      a Brain with a Foot, for daily use (Ctrl-C ends both)"
	@echo "make test     everything from a fresh checkout to passed tests"
	@echo "make nightly  the same with many more random cases, and a summary of them at the end"
	@echo "make fuzz     the readers of files and frames under libFuzzer, a minute each (part of make nightly)"
	@echo "make bench    speed and size, beside the least that they can cost on this machine (minutes to build, four to run)"

build:
	$(CARGO) build --locked --workspace --bins

components:
	@tests/install-components.sh

# What only the long tests use, too.
all-components:
	@tests/install-components.sh all

demo: build components
	@examples/demo/run.sh

dev: build
	@examples/dev.sh

# Formatting and lints first: they are quick and their messages are short.
lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then $(CARGO) deny check bans licenses sources; \
	else echo "!! cargo-deny is not installed: licences, sources and bans were NOT checked (cargo install cargo-deny)"; fi

nextest:
	@command -v cargo-nextest >/dev/null || $(CARGO) install --locked cargo-nextest

unit: nextest
	$(CARGO) build --locked --workspace --bins
	$(CARGO) nextest run --locked --workspace --no-fail-fast

test: components lint unit
	@[ -x /usr/bin/chromium ] || echo "!! /usr/bin/chromium is not there: the documents' chrome pack was NOT tested (apt-get install chromium)"

# Under an hour on two cores. The last lines say what was run.
nightly: all-components lint nextest
	$(CARGO) build --locked --workspace --bins
	@CARGO="$(CARGO)" tests/nightly.sh

# FUZZ_SECONDS for each of the readers (60).
fuzz:
	@CARGO="$(CARGO)" fuzz/run.sh

# Results are kept in target/bench. A quiet machine, please.
bench:
	$(CARGO) build --locked --release --workspace --bins
	target/release/vance-bench
