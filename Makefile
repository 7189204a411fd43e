# SPDX-License-Identifier: Apache-2.0
# Makefile - builds, tests and runs everything; `make help` lists the targets.
#
# Out of tree: objects go to $(BUILD), one sub-directory per flavour (SANITIZE=, COVERAGE=1), each
# source with its dependency file. Folders are listed by wildcard: a new .c file needs no line here.

CC       ?= cc
STRIP    ?= strip
PREFIX   ?= /usr
DESTDIR  ?=
FUZZ_SECONDS ?= 60
SANITIZE ?=
COVERAGE ?=
FUZZER   ?=
WERROR   ?=
V        ?=
BUILD    ?= build

# debian/changelog has the version; `make lint` compares the places that repeat it.
VERSION  := $(shell packaging/version.sh)
REVISION := $(shell packaging/version.sh --revision)

comma  := ,
ifneq ($(filter-out address undefined address$(comma)undefined thread,$(SANITIZE)),)
$(error SANITIZE must be address, undefined, address$(comma)undefined or thread)
endif
FLAVOUR := $(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))$(if $(COVERAGE),-coverage)$(if $(FUZZER),-fuzzer)
OUT     := $(BUILD)$(if $(FLAVOUR),/flavour$(FLAVOUR))
GEN     := $(OUT)/generated
Q       := $(if $(V),,@)

WARNINGS := -Wall -Wextra -Wformat=2 -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
  -Wmissing-declarations -Wold-style-definition -Wundef -Wwrite-strings -Wpointer-arith \
  -Wcast-qual -Wvla -Wimplicit-fallthrough -Wswitch-enum -Wconversion -Wno-sign-conversion \
  -Wdouble-promotion $(if $(WERROR),-Werror)
CFLAGS  ?= -O2 -g
ALL_CFLAGS := -std=gnu11 $(WARNINGS) -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 \
  -I. -I$(GEN) -fno-common -fPIE -fstack-protector-strong -fstack-clash-protection \
  -fno-strict-aliasing -ffunction-sections -fdata-sections \
  $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -fno-sanitize-recover=all) \
  $(if $(SANITIZE)$(COVERAGE),,-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2) \
  $(CFLAGS) $(if $(COVERAGE),--coverage -O0) $(if $(FUZZER),-fsanitize=fuzzer-no-link)
ALL_LDFLAGS := -pie -Wl,-z,relro,-z,now -Wl,--as-needed -Wl,--gc-sections $(if $(SANITIZE),-fsanitize=$(SANITIZE)) \
  $(if $(COVERAGE),--coverage) $(LDFLAGS)

# Which folder stands on which libraries. libev ships no .pc file on Debian 12.
LIBS_LIB    := -lev -lcjson -lnettle -lseccomp
LIBS_CONFIG := -linih
LIBS_STORE  := -lsqlite3
LIBS_AGENT  := -lprotobuf-c
LIBS_API    := -lmicrohttpd -lnghttp2

FOLDERS := lib model config store doctor watch observe hypervisor agent-client reconciler api crustctl guest-agent \
  crust-qemu

sources = $(sort $(wildcard $(1)/*.c))
objects = $(patsubst %.c,$(OUT)/%.o,$(1))

LIB_SOURCES         := $(call sources,lib)
MODEL_SOURCES       := $(call sources,model)
CONFIG_SOURCES      := $(call sources,config)
STORE_SOURCES       := $(call sources,store)
DOCTOR_SOURCES      := $(call sources,doctor)
AGENT_SOURCES       := $(call sources,agent-client)
WATCH_SOURCES       := $(call sources,watch)
OBSERVE_SOURCES     := $(call sources,observe)
HYPERVISOR_SOURCES  := $(call sources,hypervisor)
API_SOURCES         := $(call sources,api)
RECONCILER_SOURCES  := $(filter-out reconciler/main.c,$(call sources,reconciler) $(call sources,reconciler/*))
CRUSTCTL_SOURCES    := $(call sources,crustctl)
CRUSTCTL_OBJECTS    := $(patsubst crustctl/%.c,$(OUT)/crustctl-objects/%.o,$(CRUSTCTL_SOURCES))
GUEST_SOURCES       := $(call sources,guest-agent)
QEMU_SOURCES        := $(call sources,crust-qemu)

PROTOS     := $(sort $(wildcard agent-client/*.proto api/proto/*.proto))
PROTO_C    := $(patsubst %.proto,$(GEN)/%.pb-c.c,$(PROTOS))
PROTO_O    := $(patsubst $(GEN)/%.c,$(OUT)/generated/%.o,$(PROTO_C))

PAGE_FILES := api/status.html api/status.css api/status.js
PAGE_O     := $(OUT)/generated/api/status_files.o

# Everything that crustd is made of but main.c: unit tests link against it.
DAEMON_SOURCES := $(LIB_SOURCES) $(MODEL_SOURCES) $(CONFIG_SOURCES) $(STORE_SOURCES) $(DOCTOR_SOURCES) \
  $(WATCH_SOURCES) $(OBSERVE_SOURCES) $(HYPERVISOR_SOURCES) $(AGENT_SOURCES) $(RECONCILER_SOURCES) $(API_SOURCES)
DAEMON_OBJECTS := $(call objects,$(DAEMON_SOURCES)) $(PROTO_O) $(PAGE_O)
DAEMON_LIBRARY := $(OUT)/libcrustd.a
DAEMON_LIBS    := $(LIBS_LIB) $(LIBS_CONFIG) $(LIBS_STORE) $(LIBS_AGENT) $(LIBS_API)

TEST_SOURCES  := $(sort $(wildcard tests/unit/*/*_test.c tests/unit/*/*/*_test.c))
TEST_BINARIES := $(patsubst %.c,$(OUT)/%,$(TEST_SOURCES))
# What `make t` and `make quick` take of them, and of the integration tests.
T_BINARIES    := $(strip $(if $(T),$(foreach test,$(TEST_BINARIES),$(if $(findstring $(T),$(test)),$(test)))))
T_MODULES     := $(strip $(if $(T),$(foreach test,$(notdir $(basename $(wildcard tests/e2e/*_test.py))),$(if $(findstring $(T),$(test)),$(test)))))
QUICK_BINARIES := $(filter $(addprefix %/unit/,model/% config/% store/% hypervisor/%_codec_test reconciler/decide/%),$(TEST_BINARIES))
QUICK_MODULES := binding_test grpc_stage_test http_test lost_order_test report_volume_test
FUZZ_SOURCES  := $(sort $(wildcard tests/fuzz/*_fuzz.c))
FUZZ_REPLAYS  := $(patsubst %.c,$(OUT)/%,$(FUZZ_SOURCES))

BENCH_NAMES    := hand_resize hand_metadata host metadata scan starts vmms
BENCH_PROGRAMS := $(BENCH_NAMES:%=$(OUT)/tests/bench/%)
BENCH_PRELOADS := $(OUT)/tests/bench/new_calls.so $(OUT)/tests/bench/slow_disk.so
BENCH_SOURCES  := $(call sources,tests/bench)

# Kata's path may name it, and its own name says which QEMU it runs.
CRUST_QEMU := crust-qemu-system-$(shell uname -m)
# Where it is on a node, as the drop-in says; not below PREFIX where that is an image's.
CRUST_QEMU_DIRECTORY ?= $(PREFIX)/libexec/crustd

PROGRAMS := $(OUT)/crustd $(OUT)/crustctl $(OUT)/crust-guest-agent $(OUT)/stripped/crust-guest-agent \
  $(OUT)/$(CRUST_QEMU)

.PHONY: all check check-all check-clang check-sanitizers check-long check-node t quick demo install install-sim install-guest install-man uninstall man site deb sbom deps tests unit power-loss e2e node kubernetes soak fuzz replay search bench golden sanitize coverage parser-coverage format lint clean help programs
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:

all: programs ## build the programs into build/
programs: $(PROGRAMS)

define compile
@mkdir -p $(@D)
$(if $(V),,@echo "  CC    $<")
$(Q)$(CC) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<
endef

$(OUT)/%.o: %.c | $(PROTO_C)
	$(compile)

# The program has the name of its folder, so its objects go elsewhere.
$(OUT)/crustctl-objects/%.o: crustctl/%.c
	$(compile)

# A new version is a new program. Only these objects know it: a commit does not compile the others anew.
VERSIONED := $(shell grep -lE 'CRUST_(VERSION|REVISION)' $(FOLDERS:%=%/*.c) reconciler/*/*.c tests/unit/*/*.c)
VERSIONED_OBJECTS := $(call objects,$(filter-out crustctl/%,$(VERSIONED))) \
  $(patsubst crustctl/%.c,$(OUT)/crustctl-objects/%.o,$(filter crustctl/%,$(VERSIONED)))
$(OUT)/version: FORCE
	@mkdir -p $(@D)
	@echo '$(VERSION) $(REVISION)' | cmp -s - $@ || echo '$(VERSION) $(REVISION)' >$@
.PHONY: FORCE
$(VERSIONED_OBJECTS): private ALL_CFLAGS += -DCRUST_VERSION='"$(VERSION)"' -DCRUST_REVISION='"$(REVISION)"'
$(VERSIONED_OBJECTS): Makefile $(OUT)/version

# Generated code is not ours to warn about.
$(OUT)/generated/%.pb-c.o: $(GEN)/%.pb-c.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -w -c -o $@ $<

# Texts as bytes, the same on the wire: of a string protobuf-c does not say how long it is.
$(GEN)/%.pb-c.c: %.proto
	@mkdir -p $(@D)
	$(if $(V),,@echo "  PROTO $<")
	$(Q)sed 's/^\( *\)\(repeated \)\{0,1\}string /\1\2bytes /' $< >$(GEN)/$<
	$(Q)cd $(GEN) && protoc-c --c_out=. $<

# Each file of the status page as a C string: api/status.html is status_html.
$(GEN)/api/status_files.c: $(PAGE_FILES) Makefile
	@mkdir -p $(@D)
	$(Q)for file in $(PAGE_FILES); do \
	  echo "$$file" | sed 's|.*/|const char |; s|\.|_|; s|$$|[] =|' && \
	  sed 's/[\\"?]/\\&/g; s/.*/"&\\n"/' "$$file" && echo ';' || exit 1; done >$@

$(PAGE_O): $(GEN)/api/status_files.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -include api/http_routes.h -c -o $@ $<

$(DAEMON_LIBRARY): $(DAEMON_OBJECTS)
	@mkdir -p $(@D)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(OUT)/crustd: $(OUT)/reconciler/main.o $(DAEMON_LIBRARY)
	$(if $(V),,@echo "  LINK  $@")
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(DAEMON_LIBS)

$(OUT)/crustctl: $(CRUSTCTL_OBJECTS) $(DAEMON_LIBRARY)
	$(if $(V),,@echo "  LINK  $@")
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ $(LIBS_LIB) $(LIBS_CONFIG) $(LIBS_STORE)

# Static: it goes into guest images of any distribution, and, without its symbols, from the node into
# running guests.
$(OUT)/crust-guest-agent: $(call objects,$(GUEST_SOURCES)) $(DAEMON_LIBRARY)
	$(if $(V),,@echo "  LINK  $@")
	$(Q)$(CC) $(if $(SANITIZE)$(COVERAGE),$(ALL_LDFLAGS),-static -Wl,--gc-sections $(LDFLAGS)) -o $@ $^ -lprotobuf-c -lev -lm

# The one that crustd brings along to guests, as small as can be. Here, and not by install(1): where it
# is installed there need be no strip.
$(OUT)/stripped/crust-guest-agent: $(OUT)/crust-guest-agent
	@mkdir -p $(@D)
	$(Q)$(STRIP) -o $@ $<

# Static: it runs in the mount namespace of a shim, and starts in no time.
$(OUT)/$(CRUST_QEMU): $(call objects,$(QEMU_SOURCES))
	$(if $(V),,@echo "  LINK  $@")
	$(Q)$(CC) $(if $(SANITIZE)$(COVERAGE),$(ALL_LDFLAGS),-static -Wl,--gc-sections $(LDFLAGS)) -o $@ $^

# A test may define functions of the product: its own come first and are used in their place.
$(OUT)/tests/unit/%_test: $(OUT)/tests/unit/%_test.o $(DAEMON_LIBRARY)
	$(Q)$(CC) $(ALL_LDFLAGS) -Wl,--allow-multiple-definition -o $@ $(filter %.o,$^) $(DAEMON_LIBRARY) -lcmocka $(DAEMON_LIBS)

CRUSTCTL_TESTS := $(filter $(OUT)/tests/unit/crustctl/%,$(TEST_BINARIES))
$(CRUSTCTL_TESTS): $(CRUSTCTL_OBJECTS)

# The guest agent is no part of crustd, so its tests link its objects too.
$(OUT)/tests/unit/guest-agent/%_test: $(OUT)/tests/unit/guest-agent/%_test.o \
  $(call objects,$(filter-out guest-agent/guest_agent.c,$(GUEST_SOURCES))) $(DAEMON_LIBRARY)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -lcmocka $(DAEMON_LIBS)

# The disk that it records stands between it and libc.
POWER_LOSS_SOURCES := $(call sources,tests/power-loss)
$(OUT)/tests/unit/store/power_loss_test: $(call objects,$(POWER_LOSS_SOURCES))

$(OUT)/tests/unit/crust-qemu/%_test: $(OUT)/tests/unit/crust-qemu/%_test.o \
  $(call objects,$(filter-out crust-qemu/crust_qemu.c,$(QEMU_SOURCES)))
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $^ -lcmocka

# Replays its corpus, or with FUZZER=1 (clang) looks for more of it.
$(OUT)/tests/fuzz/%_fuzz: $(OUT)/tests/fuzz/%_fuzz.o $(if $(FUZZER),,$(OUT)/tests/fuzz/replay.o) $(DAEMON_LIBRARY)
	$(Q)$(CC) $(ALL_LDFLAGS) -Wl,--allow-multiple-definition $(if $(FUZZER),-fsanitize=fuzzer) -o $@ $^ $(DAEMON_LIBS)

# The benchmark's programs stand beside crustd; what is preloaded goes into it.
$(OUT)/tests/bench/host: $(call objects,$(addprefix tests/bench/,agent.c monitor.c sources.c))
$(BENCH_PROGRAMS): $(OUT)/tests/bench/%: $(OUT)/tests/bench/%.o $(OUT)/tests/bench/bench.o $(DAEMON_LIBRARY)
	$(Q)$(CC) $(ALL_LDFLAGS) -o $@ $(filter %.o,$^) $(DAEMON_LIBRARY) $(DAEMON_LIBS)

$(BENCH_PRELOADS): $(OUT)/tests/bench/%.so: tests/bench/%.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(ALL_CFLAGS) -fPIC -shared -o $@ $< -ldl

# For a compiler to look at; `check` runs them.
tests: programs $(TEST_BINARIES) $(FUZZ_REPLAYS) $(BENCH_PROGRAMS) $(BENCH_PRELOADS)

deps: ## install the Debian packages that all of this needs, unpack the test guest's kernel
	@tests/deps.sh build

check: ## on a bare machine: install what is missing, build, lint, run unit and integration tests, in a quarter of an hour (root)
	@tests/check.sh core

check-all: ## the same, then everything else: the parts below; an hour (root)
	@tests/check.sh core clang sanitizers long node

check-clang: ## part of check-all: the second compiler
check-sanitizers: ## part of check-all: unit tests and fuzz corpora with ASan and UBSan
check-long: ## part of check-all: every decision, long integration tests (root)
check-node: ## part of check-all: tests on whole nodes, and a cluster (root)
check-clang check-sanitizers check-long check-node:
	@tests/check.sh $(@:check-%=%)

# T: a word of the path of what is tested, as in T=decide.
t: $(T_BINARIES) $(if $(T_MODULES),programs $(BENCH_PROGRAMS)) ## build and run the tests whose path contains T (root for integration tests)
	@[ -n "$(T_BINARIES)$(T_MODULES)" ] || { echo "no test has \"$(T)\" in its path"; exit 2; }
	$(if $(T_BINARIES),@tests/run-unit.sh $(T_BINARIES))
	$(if $(T_MODULES),@CRUST_BUILD=$(OUT) tests/e2e/run.py $(T_MODULES))

quick: $(QUICK_BINARIES) programs ## tables, codecs, the store, and five integration tests, in less than a minute (root for the latter)
	@tests/run-unit.sh $(QUICK_BINARIES)
	@CRUST_BUILD=$(OUT) tests/e2e/run.py $(QUICK_MODULES)

demo: ## install what it needs, build, and watch a volume of a real micro-VM grow (root)
	@tests/deps.sh --demo build
	@$(MAKE) --no-print-directory programs
	@if [ -n "$$SUDO_UID" ]; then chown -R "$$SUDO_UID:$$SUDO_GID" build; fi
	@CRUST_BUILD=$(OUT) tests/demo.py

# Where a shell looks for completions; Debian's zsh looks in share/zsh/vendor-completions.
BASH_COMPLETIONS ?= $(PREFIX)/share/bash-completion/completions
ZSH_COMPLETIONS  ?= $(PREFIX)/share/zsh/site-functions
FISH_COMPLETIONS ?= $(PREFIX)/share/fish/vendor_completions.d
COMPLETIONS = $(BASH_COMPLETIONS)/crustctl $(ZSH_COMPLETIONS)/_crustctl $(FISH_COMPLETIONS)/crustctl.fish

# By rename(2): a pod that starts during an upgrade finds the old program or the new one, and always a whole one.
replace = install -D -m 755 $(1) $(2).new && mv -f $(2).new $(2)

install: programs ## programs, unit, configuration, proto files and Kata's drop-ins, by DESTDIR and PREFIX; keeps an existing crustd.conf
	install -D -m 755 $(OUT)/crustd $(DESTDIR)$(PREFIX)/sbin/crustd
	install -D -m 755 $(OUT)/crustctl $(DESTDIR)$(PREFIX)/bin/crustctl
	install -D -m 755 $(OUT)/crust-guest-agent $(DESTDIR)$(PREFIX)/bin/crust-guest-agent
	$(call replace,$(OUT)/$(CRUST_QEMU),$(DESTDIR)$(PREFIX)/libexec/crustd/$(CRUST_QEMU))
	$(call replace,$(OUT)/stripped/crust-guest-agent,$(DESTDIR)$(PREFIX)/libexec/crustd/crust-guest-agent)
	install -D -m 644 config/deploy/crustd.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/crustd.conf
	install -D -m 644 config/deploy/crustd.service $(DESTDIR)$(PREFIX)/lib/systemd/system/crustd.service
	sed -i 's|=/usr/sbin/|=$(PREFIX)/sbin/|' $(DESTDIR)$(PREFIX)/lib/systemd/system/crustd.service
	install -D -m 644 config/deploy/crustd-drives.conf $(DESTDIR)$(PREFIX)/share/crustd/crustd-drives.conf
	install -m 644 config/crustd.conf config/crustd.conf.example $(DESTDIR)$(PREFIX)/share/crustd
	install -D -m 755 config/deploy/node-problem-detector/check-crustd.sh $(DESTDIR)$(PREFIX)/share/crustd/node-problem-detector/check-crustd.sh
	install -m 644 config/deploy/node-problem-detector/crustd.json $(DESTDIR)$(PREFIX)/share/crustd/node-problem-detector
	install -d $(DESTDIR)$(PREFIX)/share/crustd/dashboards
	install -m 644 config/dashboards/*.json $(DESTDIR)$(PREFIX)/share/crustd/dashboards
	install -d $(DESTDIR)$(PREFIX)/share/crustd/proto
	install -m 644 api/proto/*.proto $(DESTDIR)$(PREFIX)/share/crustd/proto
	install -D -m 644 config/deploy/alerts/crustd-rules.yaml $(DESTDIR)$(PREFIX)/share/crustd/alerts/crustd-rules.yaml
	install -d $(DESTDIR)$(PREFIX)/share/crustd/kata
	install -m 644 config/deploy/kata/* $(DESTDIR)$(PREFIX)/share/crustd/kata
	sed -i 's|/usr/libexec/crustd/[a-z0-9_-]*|$(CRUST_QEMU_DIRECTORY)/$(CRUST_QEMU)|' $(DESTDIR)$(PREFIX)/share/crustd/kata/crust-qemu.toml
	install -D -m 755 packaging/completion/candidates $(DESTDIR)$(PREFIX)/libexec/crustctl/candidates
	install -D -m 644 packaging/completion/crustctl.bash $(DESTDIR)$(BASH_COMPLETIONS)/crustctl
	install -D -m 644 packaging/completion/_crustctl $(DESTDIR)$(ZSH_COMPLETIONS)/_crustctl
	install -D -m 644 packaging/completion/crustctl.fish $(DESTDIR)$(FISH_COMPLETIONS)/crustctl.fish
	sed -i 's|/usr/libexec/|$(PREFIX)/libexec/|' $(addprefix $(DESTDIR),$(COMPLETIONS))
	install -d $(DESTDIR)/etc/crustd/crustd.conf.d
	@[ -e $(DESTDIR)/etc/crustd/crustd.conf ] || install -m 644 config/crustd.conf $(DESTDIR)/etc/crustd/crustd.conf

# Into a guest's root file system that systemd starts, such as osbuilder's before it is made an image.
GUEST_WANTS = $(DESTDIR)/etc/systemd/system/kata-containers.target.wants

install-guest: $(OUT)/stripped/crust-guest-agent ## crust-guest-agent and its unit, enabled, into a guest's root at DESTDIR
	@[ -n "$(DESTDIR)" ] || { echo "DESTDIR is the guest's root, and not this machine's"; exit 2; }
	install -D -m 755 $(OUT)/stripped/crust-guest-agent $(DESTDIR)/usr/bin/crust-guest-agent
	install -D -m 644 config/deploy/guest-agent/crust-guest-agent.service $(DESTDIR)/usr/lib/systemd/system/crust-guest-agent.service
	install -d $(GUEST_WANTS)
	ln -sf /usr/lib/systemd/system/crust-guest-agent.service $(GUEST_WANTS)/crust-guest-agent.service

# In Python, with the fakes of the tests as modules.
SIM_MODULES := $(addprefix tests/fakes/,agent.py micro_http.py monitor.py shim.py unix_server.py) \
  $(addprefix tests/e2e/,node.py programs.py rust_runtime.py)

install-sim: ## crust-sim, by which a CSI driver's tests run against crustd without Kata, by DESTDIR and PREFIX (python3)
	install -D -m 755 crust-sim/crust-sim $(DESTDIR)$(PREFIX)/bin/crust-sim
	sed -i 's/^VERSION = "".*/VERSION = "$(VERSION)"/' $(DESTDIR)$(PREFIX)/bin/crust-sim
	install -d $(DESTDIR)$(PREFIX)/share/crust-sim
	install -m 644 $(SIM_MODULES) $(DESTDIR)$(PREFIX)/share/crust-sim

MAN_PAGES := man1/crust-sim.1 man1/crustctl.1 man5/crustd.conf.5 man8/crustd.8 man8/crust-guest-agent.8

man: ## the man pages, from docs/reference, into build/man (python3)
	@packaging/man_pages.py $(OUT)/man

install-man: man install ## install, with the man pages
	for page in $(MAN_PAGES); do \
	  install -D -m 644 $(OUT)/man/$${page#*/} $(DESTDIR)$(PREFIX)/share/man/$$page || exit 1; done

site: ## the documentation as a static site, into build/site (cmark-gfm)
	@packaging/site.py $(OUT)/site

sbom: programs ## what the programs are made of, as CycloneDX, into build/crustd.cdx.json (Debian)
	@packaging/sbom.py $(PROGRAMS) >$(OUT)/crustd.cdx.json

deb: ## Debian packages into build/deb
	@packaging/build-deb.sh $(OUT)/deb

# Asked of the node that is uninstalled from, before anything is removed.
CRUST_USERS = ctl=$(DESTDIR)$(PREFIX)/bin/crustctl; [ -x "$$ctl" ] || ctl=$(OUT)/crustctl; \
  "$$ctl" --root "$(DESTDIR)/" crust-qemu

uninstall: ## take away what install put there, but for /etc/crustd; not while Kata starts QEMU through crust-qemu
	@$(CRUST_USERS)
	rm -f $(DESTDIR)$(PREFIX)/sbin/crustd $(DESTDIR)$(PREFIX)/bin/crust-guest-agent
	rm -f $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/crustd.conf $(DESTDIR)$(PREFIX)/lib/systemd/system/crustd.service
	rm -f $(addprefix $(DESTDIR),$(COMPLETIONS)) $(MAN_PAGES:%=$(DESTDIR)$(PREFIX)/share/man/%)
	rm -rf $(DESTDIR)$(PREFIX)/libexec/crustd $(DESTDIR)$(PREFIX)/libexec/crustctl $(DESTDIR)$(PREFIX)/share/crustd
	rm -f $(DESTDIR)$(PREFIX)/bin/crustctl

unit: $(TEST_BINARIES) ## build and run the unit tests
	@tests/run-unit.sh $(TEST_BINARIES)

# IMAGES: how many (10,000).
power-loss: $(OUT)/tests/unit/store/power_loss_test ## cut the power of the database's disk at each write and flush of a workload
	@CRUST_IMAGES=$(or $(IMAGES),10000) $<

# PART: core, long (all).
e2e: programs $(BENCH_PROGRAMS) ## run the integration tests (root)
	@CRUST_BUILD=$(OUT) tests/e2e/run.py $(if $(PART),--part $(PART))

# ROUNDS: how often the node of power_loss_test.py loses its power (5). SCENARIOS: which of those of make
# kubernetes are run among them (none).
node: programs $(addprefix $(OUT)/tests/unit/guest-agent/,serve_test serve_protocol_test oneshot_test) ## run the tests on a whole Debian node in a virtual machine (root)
	@CRUST_BUILD=$(OUT) CRUST_ROUNDS=$(ROUNDS) CRUST_SCENARIOS="$(SCENARIOS)" tests/node/run.py

# SCENARIOS: what the names of the scenarios have in them that are to be run (all).
kubernetes: programs ## run the tests with a real API server and a real kubelet, on a node in a virtual machine (root)
	@CRUST_BUILD=$(OUT) CRUST_SCENARIOS="$(SCENARIOS)" tests/kubernetes/run.py

bench: programs $(BENCH_PROGRAMS) $(BENCH_PRELOADS) ## measure, one line of JSON per figure (root); see docs/measurements.md
	@CRUST_BUILD=$(OUT) tests/bench/run.py $(FIGURES)

# SOAK_MINUTES: about how long (10, one simulated week).
soak: programs $(BENCH_PROGRAMS) ## a node's weeks at an accelerated pace; fails if memory, descriptors, watches or database grow (root)
	@CRUST_BUILD=$(OUT) SOAK_MINUTES=$(SOAK_MINUTES) tests/soak/run.py

replay: $(FUZZ_REPLAYS) ## run every fuzz target over its corpus
	@tests/run-fuzz.sh replay $(FUZZ_REPLAYS)

fuzz: ## look for new inputs, FUZZ_SECONDS (60) per target, with clang
	@$(MAKE) --no-print-directory CC=clang SANITIZE=address,undefined FUZZER=1 search

search: $(FUZZ_REPLAYS)
	@FUZZ_SECONDS=$(FUZZ_SECONDS) tests/run-fuzz.sh search $(FUZZ_REPLAYS)

golden: $(OUT)/tests/unit/config/config_test ## accept what the configuration tests print now
	@UPDATE_GOLDEN=1 $< >/dev/null && git diff --stat -- tests/unit/config/data

sanitize: ## the unit tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) unit SANITIZE=address,undefined

coverage: ## line coverage of the unit tests, as text and in build/coverage/
	@$(MAKE) unit COVERAGE=1
	@mkdir -p $(BUILD)/coverage
	@gcovr --root . --object-directory $(BUILD)/flavour-coverage --exclude tests \
	  --exclude-directories '.*/generated' --html-details $(BUILD)/coverage/index.html --csv $(BUILD)/coverage/lines.csv --txt -
	@tests/coverage-by-folder.sh $(BUILD)/coverage/lines.csv

# Those in tests/parsers.txt, by unit tests and fuzz corpora together.
parser-coverage: ## which lines of the parsers no unit test and no fuzz corpus reaches
	@$(MAKE) unit replay COVERAGE=1
	@gcovr --root . --object-directory $(BUILD)/flavour-coverage --txt - \
	  $$(sed -n 's/^[a-z].*/--filter &/p' tests/parsers.txt) $(BUILD)/flavour-coverage

C_FILES = $(shell find $(FOLDERS) tests -name '*.[ch]')
# All code of ours has a licence line; what the tests compare with has none.
LICENSED = $(C_FILES) $(shell find api agent-client tests docs -name data -prune -o \
  '(' -name '*.proto' -o -name '*.html' -o -name '*.css' -o -name '*.js' -o -name '*.py' -o -name '*.sh' -o -name '*.go' ')' -print)

format: ## lay out all C files by .clang-format
	@clang-format -i $(C_FILES)

# It sees neither uthash's macros nor what cleanup() frees: leaks and such are the sanitizers' to find.
CPPCHECK_BLIND := $(addprefix --suppress=,unknownMacro internalAstError uninitvar memleak)

lint: programs ## layout, licence lines, layering, circles, references of the docs, versions, cppcheck and pyflakes
	@clang-format --dry-run -Werror $(C_FILES)
	@! grep -L 'SPDX-License-Identifier: Apache-2.0' $(LICENSED) | grep . || { echo "these lack their SPDX line"; exit 1; }
	@tests/check-layers.sh
	@tests/check-layers-test.sh
	@tests/check-circles.py . $(OUT)
	@CC='$(CC)' tests/check-circles-test.sh
	@tests/check-docs.py
	@tests/check-docs-test.sh
	@tests/check-version.sh
	@tests/check-version-test.sh
	@tests/check-outcomes.sh
	@tests/check-outcomes-test.sh
	@tests/count-lines
	@tests/count-lines-test.sh
	@tests/run-unit-test.sh
	@pyflakes3 $(filter %.py,$(LICENSED)) tests/node/image/root/usr/local/sbin/node-agent
	@if command -v cppcheck >/dev/null; then cppcheck --quiet --std=c11 -I. -j2 --inline-suppr \
	  --enable=warning,performance,portability --error-exitcode=1 $(CPPCHECK_BLIND) $(FOLDERS); fi

clean: ## remove what was built
	@rm -rf $(BUILD)

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST)

-include $(patsubst %.o,%.d,$(DAEMON_OBJECTS) $(CRUSTCTL_OBJECTS) $(call objects,$(GUEST_SOURCES) $(QEMU_SOURCES) \
  reconciler/main.c $(TEST_SOURCES) $(FUZZ_SOURCES) $(BENCH_SOURCES) $(POWER_LOSS_SOURCES)))
