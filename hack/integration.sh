#!/usr/bin/env bash
# Runs the tests that need a real containerd. Where it can't run, that is said
# in one line; with CI=true it is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

reason=
if [ "$(uname -s)" != Linux ]; then
  reason="containerd needs Linux, this is $(uname -s)"
elif [ "$(id -u)" != 0 ]; then
  reason="containerd needs root"
fi
if [ -n "$reason" ]; then
  echo "integration tests NOT RUN: $reason" >&2
  if [ "${CI:-}" = true ]; then exit 1; fi
  exit 0
fi
hack/install.sh runtime
export PATH=$PATH:/usr/sbin:/sbin
cd test
flags=(-count=1 -timeout "${INTEGRATION_TIMEOUT:-25m}")
# One package at a time: the stories measure time.
go test -p 1 "${flags[@]}" ./...
echo "the same stories on containerd 2.x"
KUBELETKIT_CONTAINERD=v2 go test "${flags[@]}" ./integration
