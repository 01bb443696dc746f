#!/bin/sh
# Runs the tests. Every processor takes one test file after another, in the order of their names, so
# that the quick ones of tests/unit fill what is left at the end. The pure package wire/ must be covered
# whole by its unit tests, branches included, because nothing there depends on the machine; they run
# once more for that, by themselves, since measuring makes everything in the same process several
# times as slow, and a worker of xdist measures even what is marked no_cover (`pytest --cov` measures
# the rest). The last line printed is pytest's closing line of the whole, so that whoever reads only
# the end of the output reads the verdict.
#
#   run-tests.sh BIN [pytest arguments]      BIN is the folder of the tools
set -eu

bin=$1
shift
log=$(mktemp)
trap 'rm -f "$log" "$log.status"' EXIT

# Otherwise each of the programs that tests start would compile the package for itself.
unset PYTHONDONTWRITEBYTECODE

colour=no
[ -t 1 ] && colour=yes

# A pipe hides the status of its left side, so that side leaves it in a file.
{
  status=0
  "$bin/python" -m pytest --ignore=tests/peers --ignore=tests/console --numprocesses=auto --dist=loadfile --no-loadscope-reorder \
    --color="$colour" "$@" </dev/null 2>&1 || status=$?
  echo "$status" >"$log.status"
} | tee "$log"
status=$(cat "$log.status")
[ "$status" -eq 0 ] || exit "$status"

# A run of chosen tests only cannot cover it, and is not asked to.
if [ $# -eq 0 ]; then
  echo "wire/, which must be whole:"
  "$bin/python" -m pytest tests/unit/wire --quiet --cov=dragoman.wire --cov-fail-under=100 \
    --cov-report=term-missing --color="$colour" </dev/null
fi
tail -n 1 "$log"
