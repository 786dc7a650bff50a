# Short names for what CMake and the scripts do. BUILD names another build folder, CMAKE_FLAGS has further options of cmake:
#   make BUILD=build-clang CMAKE_FLAGS=-DCMAKE_C_COMPILER=clang

BUILD ?= build
CMAKE_FLAGS ?=
JOBS ?= $(shell nproc 2>/dev/null || echo 2)

.PHONY: all build test test-python wheel site deb demo bench bench-peers fuzz coverage hooks format check install uninstall install-dependencies clean help

all: build

help:
	@echo "make                       the library and the command, $(BUILD)/hark"
	@echo "make demo                  three minutes: installs what is missing, trains a model on this repository's text, shows the result"
	@echo "make test                  installs what is missing, builds, runs the suite"
	@echo "make test-python           the tests of the Python package, in a virtual environment in $(BUILD)/python-venv"
	@echo "make wheel                 the Python package as a wheel, in $(BUILD)/wheels"
	@echo "make site                  the documentation as a web site, in build/site"
	@echo "make deb                   Debian packages, in build/deb"
	@echo "make bench                 the machine's peak and the attention cases of docs/notes/machine-b.md"
	@echo "make bench-peers           the same compared with PyTorch, in a separate virtual environment"
	@echo "make fuzz                  the readers of files with any bytes: SECONDS=60 per target, TARGETS=\"json config\" (clang)"
	@echo "make coverage              which lines the tests reach, in $(BUILD)/coverage (gcc; long)"
	@echo "make hooks                 git formats the files of every commit"
	@echo "make format                formats the sources"
	@echo "make check                 all continuous integration checks (long)"
	@echo "make install               installs to PREFIX (/usr/local), below DESTDIR when given"
	@echo "make uninstall             removes the files that the last make install wrote"
	@echo "make install-dependencies  Debian packages that are needed and missing"
	@echo "make clean                 removes $(BUILD)"

$(BUILD)/Makefile: CMakeLists.txt $(wildcard cmake/*.cmake)
	@cmake -G "Unix Makefiles" -S . -B $(BUILD) $(CMAKE_FLAGS) || { echo "Something is missing? make install-dependencies"; exit 1; }

build: $(BUILD)/Makefile
	@$(MAKE) --no-print-directory -C $(BUILD) -j$(JOBS)

install-dependencies:
	@sh scripts/install-dependencies.sh

test: install-dependencies
	@cmake -G "Unix Makefiles" -S . -B $(BUILD) -DHARK_BUILD_TESTS=ON $(CMAKE_FLAGS)
	@$(MAKE) --no-print-directory build
	@ctest --test-dir $(BUILD) --output-on-failure -j$(JOBS)

test-python: build
	@sh scripts/test-python.sh $(BUILD)

wheel:
	@sh scripts/make-wheel.sh $(BUILD)

site:
	@sh scripts/check-site.sh

deb:
	@sh scripts/make-deb.sh

# Only the command: a first look does not wait for the tests.
demo: install-dependencies
	@$(MAKE) --no-print-directory $(BUILD)/Makefile
	@$(MAKE) --no-print-directory -C $(BUILD) -j$(JOBS) hark_command
	@sh scripts/demo.sh $(BUILD)

bench: build
	@sh bench/run.sh $(BUILD)

bench-peers: build
	@sh bench/peers/run.sh $(BUILD)

# Reads of files with any bytes; docs/testing.md.
SECONDS ?= 60
fuzz:
	@cmake -G "Unix Makefiles" -S . -B $(BUILD)/fuzz -DCMAKE_C_COMPILER=clang -DHARK_BUILD_FUZZERS=ON -DHARK_BUILD_TESTS=OFF -DHARK_BUILD_EXAMPLES=OFF \
	  -DHARK_WITH_ONEDNN=OFF -DHARK_WITH_THREADS=OFF $(CMAKE_FLAGS)
	@cmake --build $(BUILD)/fuzz --target fuzzers -j$(JOBS)
	@sh scripts/fuzz.sh $(BUILD)/fuzz $(SECONDS) $(TARGETS)

coverage:
	@sh scripts/coverage.sh $(BUILD)/coverage

hooks:
	@cp scripts/pre-commit.sh "$$(git rev-parse --git-path hooks)/pre-commit"

format:
	@sh scripts/format.sh

check:
	@.ci/run

# To PREFIX, which may be relative and may hold blanks; below DESTDIR, for those who make packages.
install: build
	@DESTDIR="$(DESTDIR)" cmake --install $(BUILD) $(if $(PREFIX),--prefix "$(PREFIX)")

uninstall:
	@DESTDIR="$(DESTDIR)" cmake "-DBUILD=$(BUILD)" -P cmake/Uninstall.cmake

clean:
	rm -rf $(BUILD)
