#!/usr/bin/env bash
# Benchmarks of all rooms, then a node beside direct CRI calls on a containerd of
# its own. Flags go to the second part; see test/bench/doc.go.
set -euo pipefail
cd "$(dirname "$0")/.."

# The thousand pods take two and a half minutes.
go test -run '^$' -bench . -benchmem -timeout 30m ./...

if [ "$(uname -s)" != Linux ] || [ "$(id -u)" != 0 ]; then
  echo "bench on containerd NOT RUN: it needs Linux and root" >&2
  exit 0
fi
hack/install.sh runtime
export PATH=$PATH:/usr/sbin:/sbin
cd test
go run ./bench "$@"
