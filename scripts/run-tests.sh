#!/bin/sh
# Run the tests. Three processes for two CPU cores take one test file after another in alphabetical order,
# so that the fast ones in tests/unit fill the gaps at the end. There are more processes than cores because
# many tests wait for a timeout of another process. The unit tests of the pure package wire/ must cover it
# completely, including branches, because nothing in it depends on the machine. They run a second time
# for that, because measuring coverage makes everything in the process several times slower, and xdist
# workers measure even tests marked with no_cover. (`pytest --cov` measures everything else.) The last
# line of the output is pytest's summary of the first run.
#
#   run-tests.sh BIN [pytest arguments]      BIN is the directory of the tools
set -eu

bin=$1
shift
log=$(mktemp)
trap 'rm -f "$log" "$log.status"' EXIT

# Otherwise every program that a test starts would compile the package again.
unset PYTHONDONTWRITEBYTECODE

colour=no
[ -t 1 ] && colour=yes

workers=$("$bin/python" -c 'import os; print((3 * (os.cpu_count() or 1) + 1) // 2)')

# A pipe hides the exit status of its left side, so store it in a file.
{
  status=0
  "$bin/python" -m pytest --ignore=tests/peers --ignore=tests/console --ignore=tests/fleet --ignore=tests/hosts --numprocesses="$workers" --dist=loadfile --no-loadscope-reorder \
    --color="$colour" "$@" </dev/null 2>&1 || status=$?
  echo "$status" >"$log.status"
} | tee "$log"
status=$(cat "$log.status")
[ "$status" -eq 0 ] || exit "$status"

# Not if only some tests were selected: they cannot cover it.
if [ $# -eq 0 ]; then
  echo "coverage of wire/, which must be complete:"
  "$bin/python" -m pytest tests/unit/wire --quiet --cov=dragoman.wire --cov-fail-under=100 \
    --cov-report=term-missing --color="$colour" </dev/null
fi
tail -n 1 "$log"
