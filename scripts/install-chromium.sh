#!/bin/sh
# Make sure that Chromium is available for the browser tests: the program in CHROMIUM, one on the PATH, or
# Debian's package, which is installed if we are root. Without Chromium the tests are skipped, with a hint.
found() {
  [ -n "${CHROMIUM:-}" ] || command -v chromium >/dev/null || command -v chromium-browser >/dev/null
}

found && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing Chromium (once; a minute) ..."
  log=$(mktemp)
  export DEBIAN_FRONTEND=noninteractive
  # Another apt-get may be running: wait for its lock.
  { timeout 120 apt-get update &&
    timeout 300 apt-get -o DPkg::Lock::Timeout=200 install --yes --no-install-recommends chromium; } \
    >"$log" 2>&1 </dev/null || tail -n 5 "$log" >&2
  rm -f "$log"
fi
found || echo "Chromium not found, so the browser tests are skipped: apt install chromium," \
  "or CHROMIUM=/path make test-console" >&2
