#!/bin/sh
# Runs the tests. The quiet room wire/ must be covered whole, branches included, because nothing there
# depends on the machine; only that room is measured, since measuring makes everything slower (`pytest
# --cov` measures the rest). Every processor takes one test file after another, in the order of their
# names, so that the quick ones of tests/unit fill what is left at the end. The last line printed is
# pytest's closing line, so that whoever reads only the end of the output reads the verdict.
#
#   run-tests.sh BIN [pytest arguments]      BIN is the folder of the tools
set -eu

bin=$1
shift
log=$(mktemp)
trap 'rm -f "$log" "$log.status"' EXIT

colour=no
[ -t 1 ] && colour=yes

# A pipe hides the status of its left side, so that side leaves it in a file.
{
  status=0
  "$bin/python" -m pytest --ignore=tests/peers --numprocesses=auto --dist=loadfile --no-loadscope-reorder \
    --cov=dragoman.wire --cov-report= --color="$colour" "$@" </dev/null 2>&1 || status=$?
  echo "$status" >"$log.status"
} | tee "$log"
status=$(cat "$log.status")
[ "$status" -eq 0 ] || exit "$status"

# A run of chosen tests only cannot cover the room, and is not asked to.
if [ $# -eq 0 ]; then
  echo "wire/, which must be whole:"
  "$bin/python" -m coverage report --include='src/dragoman/wire/*' --show-missing --fail-under=100
fi
tail -n 1 "$log"
