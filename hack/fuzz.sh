#!/usr/bin/env bash
# Runs every fuzz target of the root module for FUZZTIME each (default 10s).
set -euo pipefail
cd "$(dirname "$0")/.."

grep -rl --include='*_test.go' --exclude-dir=test --exclude-dir=.dev '^func Fuzz' . | while read -r file; do
  grep -o '^func Fuzz[A-Za-z0-9_]*' "$file" | cut -d' ' -f2 | while read -r target; do
    echo "$(dirname "$file") $target"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-10s}" "$(dirname "$file")" < /dev/null
  done
done
