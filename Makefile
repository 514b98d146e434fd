# Two commands are all a newcomer needs: `make demo` and `make test`. Both check what they need first.

CARGO ?= cargo
# More flags of `gpuledger demo`, such as DEMO_FLAGS="--seed 7 --out elsewhere".
DEMO_FLAGS ?=

.DEFAULT_GOAL := help
.PHONY: help setup demo test check format

help:
	@echo "make demo    simulate a fleet and its bills, make the ledger, write gpuledger-demo/report.html"
	@echo "make test    run every test that needs no outside server"
	@echo "make check   lints, format and documentation, as .ci/run does"
	@echo "make format  lay the code out"

# Cargo fetches and builds everything else by itself; Rust of at least `rust-version` in Cargo.toml is checked by it.
setup:
	@command -v $(CARGO) >/dev/null 2>&1 || { \
	  echo "error: cargo is not on the PATH" >&2; \
	  echo "  hint: install Rust 1.95 or later from https://rustup.rs, then open a new shell" >&2; \
	  exit 1; }
	@command -v cc >/dev/null 2>&1 || command -v gcc >/dev/null 2>&1 || command -v clang >/dev/null 2>&1 || { \
	  echo "error: no C compiler (cc) is on the PATH; zstd and the linker need one" >&2; \
	  echo "  hint: apt-get install gcc, dnf install gcc, or xcode-select --install" >&2; \
	  exit 1; }

demo: setup
	$(CARGO) run --profile demo --package gpuledger -- demo $(DEMO_FLAGS)

test: setup
	$(CARGO) test --workspace

check: setup
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) fmt --all --check
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps

format: setup
	$(CARGO) fmt --all
