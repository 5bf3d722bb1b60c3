#!/usr/bin/env bash
# Runs the tests that depend on the version of Python (user code is read as bytecode) on each given version.
#   python_versions.sh            3.11, 3.12 and 3.13
#   python_versions.sh 3.12       one of them
# Each version gets its own .venv-VERSION with the locked packages: by uv, which can fetch interpreters, or by
# pythonVERSION or pyenv's, and pip.
set -euo pipefail
cd "$(dirname "$0")/.."

interpreter() {
    local found
    if command -v uv >/dev/null 2>&1 && found=$(uv python find "$1" 2>/dev/null); then
        echo "$found"
    elif found=$(command -v "python$1") && "$found" -c '' 2>/dev/null; then
        echo "$found"
    else
        ls "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python3 2>/dev/null | tail -1
    fi
}

versions=("$@")
[ $# -gt 0 ] || versions=(3.11 3.12 3.13)
for version in "${versions[@]}"; do
    folder=.venv-$version
    if [ ! -e "$folder/.ready" ]; then
        if command -v uv >/dev/null 2>&1; then uv python install -q "$version" || true; fi
        python=$(interpreter "$version")
        if [ -z "$python" ]; then
            echo "no python $version: install it, or install uv, which can fetch it" >&2
            exit 1
        fi
        echo "python $version: installing the locked packages into $folder"
        "$python" -m venv "$folder"
        "$folder/bin/python" -m pip install -q --disable-pip-version-check --require-hashes -r requirements-dev.lock
        touch "$folder/.ready"
    fi
    "$folder/bin/python" --version
    PYTHONPATH=src "$folder/bin/python" -m pytest -q -p no:cacheprovider tests/unit/process tests/unit/operators
done
