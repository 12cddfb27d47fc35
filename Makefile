# Two commands: `make run` shows perch at work, `make test` passes all tests. `make help` lists the rest.

CARGO ?= cargo
SUDO  := $(shell [ "$$(id -u)" = 0 ] || echo sudo)

BUILD_PACKAGES := pkg-config binutils gcc libc6-dev libhwloc-dev libudev-dev libpfm4
TEST_PACKAGES   = $(shell cat testbed/apt-packages.txt)
ACCURACY_PACKAGES = $(shell cat crates/accuracy/apt-packages.txt)
BENCH_PACKAGES := linux-perf libpapi-dev likwid procps util-linux
TRACE_PACKAGES := qemu-user
# Guests with Arm processors, and perch for them.
ARM_PACKAGES   := qemu-system-arm gcc-aarch64-linux-gnu g++-aarch64-linux-gnu libc6-dev-arm64-cross
ARM_TARGET     := aarch64-unknown-linux-gnu
DEB_PACKAGES := dpkg-dev binutils
WHEEL_PACKAGES := python3-venv

TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
PERCH  := $(TARGET)/release/perch
PLUGIN := $(TARGET)/release/libperch_trace_plugin.so
# Where cargo has put liblibperch.so and liblibperch.a.
LIBRARIES := $(TARGET)/release
# What a program needs that contains libperch.a.
STATIC_LIBS := -Wl,--gc-sections -lgcc_s -lpthread -lm -ldl

.PHONY: help run build examples test guests churn torture lint accuracy bench fidelity validation results fuzz install install-files deb wheel pictures

help:
	@echo "make run       build perch and show it on a real mixed program"
	@echo "make test      all tests, those in virtual machines included (root; 11 minutes on 2 CPUs, once built)"
	@echo "make guests    the tests in virtual machines, also those that take minutes each"
	@echo "make torture   attack perch's safety promises (root, about half an hour)"
	@echo "make churn     500 short-lived threads a second: nothing may leak (MINUTES=20)"
	@echo "make lint      format and clippy"
	@echo "make accuracy  perch against counted instructions, PROGRAMS=development, held-out or both (writes docs/accuracy.md)"
	@echo "make bench     perch's own cost against perf stat, and its parts"
	@echo "make fidelity  how far the simulator's interval level is off (writes docs/fidelity.md; an hour beside other work)"
	@echo "make validation  simulated machines beside measurements of the real ones (writes docs/validation.md)"
	@echo "make results   run all experiments again, for the tables of cmt.md, masa.md and workover.md (an hour or more)"
	@echo "make fuzz      fuzz every parser of outside bytes (SECONDS=10 each)"
	@echo "make pictures  draw docs/images/*.svg again"
	@echo "make install   install the command, its man pages and completions, and libperch (PREFIX=/usr/local)"
	@echo "make deb       build a Debian package in target/debian"
	@echo "make wheel     build the Python package in target/wheels and try it (pip needs the network)"

# Installs what is missing of the packages in $(1), and asks nothing of the network if all are there. Waits while another
# program installs something, as a machine often does right after it was started.
define need
	@missing=$$(for p in $(1); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then echo "installing" $$missing; \
	  $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends $$missing >/dev/null; fi
endef

packages:
	$(call need,$(BUILD_PACKAGES))

build: packages
	$(CARGO) build --release -p perch -p perch-trace-plugin -p perch-libperch

examples: packages
	$(MAKE) -s -C examples

run: build examples
	@sh examples/demo.sh $(PERCH)

# Chromium, in which a test opens pages of `perch report`, is the largest of them: 124 MB to load, 412 MB on disk.
test-packages: packages
	$(call need,$(TEST_PACKAGES) $(TRACE_PACKAGES) $(DEB_PACKAGES) groff-base chromium)

# Those in virtual machines get the perch that cargo builds for the tests before it runs any.
# Tests that this machine does not allow say so in a file; PERCH_NO_SKIPS="pmu pus" forbids that for all other reasons
# (crates/skip).
test: export PERCH_BIN ?= $(TARGET)/debug/perch
test: export PERCH_SKIP_LOG := $(TARGET)/skipped-tests
test: test-packages examples
	@rm -f $$PERCH_SKIP_LOG
	@CARGO=$(CARGO) sh testbed/tests.sh; status=$$?; \
	if [ -s $$PERCH_SKIP_LOG ]; then echo; echo "not tested here:"; sort -u $$PERCH_SKIP_LOG; fi; exit $$status

# All tests in virtual machines: also those that `make test` leaves out because they take minutes each.
guests: export PERCH_BIN ?= $(TARGET)/debug/perch
guests: test-packages
	$(call need,$(ARM_PACKAGES))
	@! command -v rustup >/dev/null || rustup target add $(ARM_TARGET)
	$(CARGO) build -p perch
	$(CARGO) test --workspace --test guests -- --include-ignored

churn: packages
	PERCH_CHURN_MINUTES=$(or $(MINUTES),20) $(CARGO) test -p perch --test churn -- --nocapture

# Built by the user, run by root: nothing in target/ comes to belong to somebody else.
torture: build
	$(CARGO) build --release -p perch-torture
	$(SUDO) $(TARGET)/release/perch-torture --perch $(PERCH)

lint: packages
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets -- -D warnings
	$(CARGO) clippy --workspace --test guests -- -D warnings

accuracy: build
	$(call need,$(ACCURACY_PACKAGES))
	$(CARGO) run --release -p perch-accuracy -- --programs $(or $(PROGRAMS),both)

bench: build examples
	$(call need,$(BENCH_PACKAGES))
	$(CARGO) bench -p perch-policy
	$(CARGO) bench -p perch-sim
	$(CARGO) run --release -p perch-bench

# With a seed that nothing was developed with.
FIDELITY = $(PERCH) lab fidelity --seed 3313 --json

fidelity: build
	$(FIDELITY) --workloads 4 --placements 4 > $(TARGET)/fidelity.json
	$(FIDELITY) --cold -m cmt-4x4,amd-bulldozer,smt2-zen,numa-2 --threads 2,8 --workloads 3 --placements 3 \
	  > $(TARGET)/fidelity-cold.json
	$(FIDELITY) -m cmt-4x4,cmt-16x8,smt2-zen,numa-2,ibm-power7-smt2,ibm-power7-smt4 --threads pus --workloads 3 \
	  --placements 3 > $(TARGET)/fidelity-full.json
	mv $(TARGET)/fidelity.json $(TARGET)/fidelity-cold.json $(TARGET)/fidelity-full.json docs/results/
	$(CARGO) run --release -p perch-lab --example pages

validation: build
	$(PERCH) lab validate --json > $(TARGET)/validation.json
	mv $(TARGET)/validation.json docs/results/
	$(CARGO) run --release -p perch-lab --example pages

fuzz: packages
	sh fuzz/run.sh $(or $(SECONDS),10)

# All experiments, and the tables of their pages.
results: packages
	$(CARGO) run --release -p perch-lab --example results
	$(CARGO) run --release -p perch-lab --example pages

pictures: build
	sh docs/images/draw.sh $(PERCH) docs/images

PREFIX ?= /usr/local
BASH_COMPLETIONS ?= $(PREFIX)/share/bash-completion/completions
ZSH_COMPLETIONS  ?= $(PREFIX)/share/zsh/site-functions
FISH_COMPLETIONS ?= $(PREFIX)/share/fish/vendor_completions.d
MAN1 := $(DESTDIR)$(PREFIX)/share/man/man1
LIB := $(DESTDIR)$(PREFIX)/lib
HEADERS := $(CURDIR)/crates/libperch/include
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' $(CURDIR)/Cargo.toml | head -1)

install: build install-files

# What is built already: for packages.
install-files:
	install -Dm755 $(PERCH) $(DESTDIR)$(PREFIX)/bin/perch
	install -Dm644 $(PLUGIN) $(DESTDIR)$(PREFIX)/lib/perch/libperch_trace_plugin.so
	mkdir -p $(MAN1) $(DESTDIR)$(BASH_COMPLETIONS) $(DESTDIR)$(ZSH_COMPLETIONS) $(DESTDIR)$(FISH_COMPLETIONS)
	$(PERCH) man $(MAN1)
	$(PERCH) completions bash > $(DESTDIR)$(BASH_COMPLETIONS)/perch
	$(PERCH) completions zsh > $(DESTDIR)$(ZSH_COMPLETIONS)/_perch
	$(PERCH) completions fish > $(DESTDIR)$(FISH_COMPLETIONS)/perch.fish
	install -Dm644 $(LIBRARIES)/liblibperch.so $(LIB)/libperch.so.$(VERSION)
	ln -sf libperch.so.$(VERSION) $(LIB)/libperch.so.0
	ln -sf libperch.so.0 $(LIB)/libperch.so
	sh packaging/static.sh $(LIBRARIES)/liblibperch.a $(LIB)/libperch.a
	install -Dm644 -t $(DESTDIR)$(PREFIX)/include $(HEADERS)/perch.h $(HEADERS)/perch.hpp
	install -Dm644 -t $(DESTDIR)$(PREFIX)/include/perch/compat $(HEADERS)/perch/compat/*.h
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/perch $(HEADERS)/perch.f90
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/perch/python/perch python/perch/__init__.py
	mkdir -p $(LIB)/pkgconfig
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(VERSION)|' -e 's|@LIBS@|$(STATIC_LIBS)|' packaging/perch.pc.in > $(LIB)/pkgconfig/perch.pc

deb: build
	$(call need,$(DEB_PACKAGES))
	sh packaging/deb.sh $(PERCH) $(PLUGIN) $(LIBRARIES) $(TARGET)/debian

wheel: packages
	$(call need,$(WHEEL_PACKAGES))
	sh packaging/wheel.sh $(TARGET)/wheels
