#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Writes requirements/*.lock from pyproject.toml: newest versions, valid for every Python that this project supports.
# uv has its own environment, and is not among the packages that it locks.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv-lock/bin/uv ] || { python3 -m venv .venv-lock && .venv-lock/bin/python -m pip install --quiet uv; }

compile() {
    output=requirements/$1.lock
    shift
    echo "==> $output"
    .venv-lock/bin/uv pip compile "$@" --quiet --upgrade --output-file "$output" \
        --universal --python-version 3.11 --fork-strategy fewest \
        --generate-hashes --no-emit-index-url --custom-compile-command "make lock"
}
compile dev pyproject.toml --extra spark --group dev
# What `make demo` installs, in the versions of the whole environment.
compile demo pyproject.toml --extra spark --constraints requirements/dev.lock
# What `make release` runs, in an environment of its own.
compile release --group release
# What `make fuzz-coverage` puts beside it.
compile fuzz --group fuzz
compile build --group build --constraints requirements/dev.lock
# The lowest versions that pyproject.toml allows, for `make test-lowest`.
compile lowest pyproject.toml --extra spark --group test --resolution lowest-direct
