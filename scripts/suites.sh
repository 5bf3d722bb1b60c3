#!/usr/bin/env bash
# Runs every suite, also when one fails, and says at the end which did.  `make check` runs the first of them alone.
# Hashes of strings, and so the order of sets, are the same in every run.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONHASHSEED=0
python=.venv/bin/python
failed=()

suite() { # suite <name> <command ...>
    local name=$1 started=$SECONDS
    shift
    echo "== $name: $*"
    if "$@"; then
        echo "== $name: ok, $((SECONDS - started)) s"
    else
        failed+=("$name")
        echo "== $name: FAILED, $((SECONDS - started)) s"
    fi
}

suite format $python -m ruff format --check .
suite lint $python -m ruff check .
suite types $python -m mypy
suite unit $python -m pytest -q --durations=10 -m "not slow" -n 2 tests/unit
if [ "${1:-}" != check ]; then
    suite sql $python -m pytest -q --durations=10 -m "not slow" -n 2 --dist loadfile tests/sql
    suite rest $python -m pytest -q --durations=10 -m "not slow and not spark" -n 2 --dist loadfile \
        tests/bad_input tests/docs tests/examples tests/golden tests/oracle tests/sim
    # These start servers and use both cores themselves.
    suite servers $python -m pytest -q --durations=10 -m "not slow" tests/spark tests/kafka tests/e2e tests/chaos
    suite examples $python -m pytest -q -m spark tests/examples
fi

if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
echo "all suites passed in $((SECONDS / 60)) min $((SECONDS % 60)) s"
