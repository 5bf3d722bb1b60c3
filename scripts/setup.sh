#!/usr/bin/env bash
# Makes .venv with exactly the locked packages and this project, editable.
# With uv from uv.lock; without it with venv and pip from the same pins in requirements.lock.
set -euo pipefail
cd "$(dirname "$0")/.."

if command -v uv >/dev/null 2>&1 && uv --version >/dev/null 2>&1; then
    # --inexact leaves packages alone that a developer added by hand.
    exec uv sync --quiet --locked --all-extras --inexact
fi

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
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
