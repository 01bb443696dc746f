#!/bin/sh
# Make sure that there is a Chromium for the tests of pages: one that CHROMIUM names, one on the PATH, or
# Debian's, which root installs here. Without one the tests in a browser are skipped, and this says why.
found() {
  [ -n "${CHROMIUM:-}" ] || command -v chromium >/dev/null || command -v chromium-browser >/dev/null
}

found && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing Chromium (once; a minute) ..."
  log=$(mktemp)
  export DEBIAN_FRONTEND=noninteractive
  { timeout 120 apt-get update && timeout 300 apt-get install --yes --no-install-recommends chromium; } \
    >"$log" 2>&1 </dev/null || tail -n 5 "$log" >&2
  rm -f "$log"
fi
found || echo "There is no Chromium, so tests in a browser are skipped: apt install chromium," \
  "or name one: CHROMIUM=/path make test-console" >&2
