#!/usr/bin/env bash
# Makes .venv with exactly the locked packages and this project, editable.
#   setup.sh run   what running Millpond needs
#   setup.sh dev   that and what its tests need
# With uv from uv.lock; without it with venv and pip from the same pins in requirements.lock or requirements-dev.lock.
set -euo pipefail
cd "$(dirname "$0")/.."

case "${1:-dev}" in
run) lock=requirements.lock extras=() note="about 0.6 GB to download, most of it Spark; one to three minutes" ;;
dev) lock=requirements-dev.lock extras=(--all-extras) note="about 0.8 GB to download, most of it Spark; two to four minutes" ;;
*) echo "usage: setup.sh run|dev" >&2 && exit 2 ;;
esac
echo "Installing Millpond into .venv ($note)"

if command -v uv >/dev/null 2>&1 && uv --version >/dev/null 2>&1; then
    # --inexact leaves packages alone that a developer added by hand.
    uv sync --locked "${extras[@]}" --inexact
else
    python=""
    for candidate in python3 python3.13 python3.12 python3.11; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            python=$candidate
            break
        fi
    done
    if [ -z "$python" ]; then
        echo "millpond needs python 3.11 or newer: install it, or install uv, which brings its own" >&2
        exit 1
    fi
    if [ ! -x .venv/bin/python ]; then
        if ! "$python" -c 'import ensurepip' 2>/dev/null; then
            echo "$python has no venv module: on Debian and Ubuntu, apt-get install python3-venv" >&2
            exit 1
        fi
        "$python" -m venv .venv
    fi
    .venv/bin/python -m pip install --disable-pip-version-check --require-hashes -r "$lock"
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
fi

touch .venv/.millpond-run
if [ "${1:-dev}" = dev ]; then touch .venv/.millpond-dev; fi
