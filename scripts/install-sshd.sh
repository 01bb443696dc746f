#!/bin/sh
# Make sure that sshd is available for the tests of other machines: an installed one, or Debian's package,
# which is installed if we are root. Without sshd the tests are skipped, with a hint. No service is started:
# the tests run their own sshd on loopback.
found() {
  { command -v sshd >/dev/null || [ -x /usr/sbin/sshd ]; } && command -v ssh >/dev/null
}

found && exit 0
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "Installing OpenSSH (once; half a minute) ..."
  log=$(mktemp)
  # Debian starts the server after the installation. This prevents it.
  policy=/usr/sbin/policy-rc.d
  made=
  [ -e "$policy" ] || { printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod 755 "$policy" && made=yes; }
  export DEBIAN_FRONTEND=noninteractive
  # Another apt-get may be running: wait for its lock.
  { timeout 120 apt-get update &&
    timeout 300 apt-get -o DPkg::Lock::Timeout=200 install --yes --no-install-recommends \
      openssh-server openssh-client iproute2; } \
    >"$log" 2>&1 </dev/null || tail -n 5 "$log" >&2
  [ -z "$made" ] || rm -f "$policy"
  rm -f "$log"
fi
found || echo "sshd not found, so the tests of other machines are skipped:" \
  "apt install openssh-server" >&2
