#!/usr/bin/env bash
# Runs every suite, also when one fails, and says at the end which did.  `suites.sh check` runs the first of them.
# Hashes of strings, and so the order of sets, are the same in every run.
# Bytecode is cached even where the environment says otherwise (as many container images do): the tests start
# hundreds of Python processes, and each would compile Millpond again.
set -uo pipefail
cd "$(dirname "$0")/.."
export PYTHONHASHSEED=0
unset PYTHONDONTWRITEBYTECODE
python=.venv/bin/python
# Files of tests are in memory where there is room: every commit of a pond waits for the disk several times.
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && [ "$(df -Pk /dev/shm | awk 'NR == 2 { print $4 }')" -gt 8000000 ]; then
    memory=$(mktemp -d /dev/shm/mp.XXXX)
    export TMPDIR=$memory
fi
scratch=$(mktemp -d)
beside=""
trap 'if [ -n "$beside" ]; then kill "$beside" 2>/dev/null; fi; rm -rf "$scratch" "${memory:-}"' EXIT

suite() { # suite <name> <command ...>
    local name=$1 started=$SECONDS
    shift
    echo "== $name: $*"
    if "$@"; then
        echo "== $name: ok, $((SECONDS - started)) s"
    else
        echo "$name" >>"$scratch/failed"
        echo "== $name: FAILED, $((SECONDS - started)) s"
    fi
}

tests() { # tests <pytest arguments ...>
    $python -m pytest -q --durations=10 "$@"
}

servers() { # Spark, Kafka, PostgreSQL and S3: one test at a time, because they start servers and wait for them most of the time
    suite servers tests -m "not slow" tests/spark tests/kafka tests/postgres tests/e2e tests/serving tests/chaos
    suite examples tests -m "spark and not slow" tests/examples
}

if [ "${1:-}" != check ]; then
    echo "== servers and examples run beside the other suites; what they print comes at the end"
    servers >"$scratch/servers.log" 2>&1 &
    beside=$!
fi
suite format $python -m ruff format --check .
suite lint $python -m ruff check .
suite types $python -m mypy
suite unit tests -m "not slow" -n 2 --dist worksteal tests/unit
if [ "${1:-}" != check ]; then
    suite sql tests -m "not slow" -n 2 --dist worksteal tests/sql tests/functions tests/dialects
    suite rest tests -m "not slow and not spark" -n 2 --dist worksteal \
        tests/bad_input tests/beam tests/docs tests/examples tests/golden tests/lakes tests/oracle tests/sim
    wait "$beside"
    beside=""
    cat "$scratch/servers.log"
fi

if [ -e "$scratch/failed" ]; then
    echo "failed: $(paste -sd ' ' "$scratch/failed")" >&2
    exit 1
fi
echo "all suites passed in $((SECONDS / 60)) min $((SECONDS % 60)) s"
