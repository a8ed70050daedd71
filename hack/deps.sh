#!/usr/bin/env bash
# Writes deps.txt beside each room: the packages it drags in, its own module's
# first, the standard library left out. A new dependency shows in review.
set -euo pipefail
cd "$(dirname "$0")/.."

export GOOS=linux GOARCH=amd64 CGO_ENABLED=0 GOFLAGS= GOWORK=off LC_ALL=C
module=$(go list -m)
go list ./... | while read -r package; do
  dir=.${package#"$module"}
  if [ "$dir" = . ]; then continue; fi
  go list -deps -f '{{if not .Standard}}{{.ImportPath}}{{end}}' "$package" \
    | { grep -vx "$package" || true; } \
    | awk -v m="$module/" '{ print (index($0, m) == 1 ? "0 " : "1 ") $0 }' | sort | cut -d' ' -f2 \
    > "$dir/deps.txt"
done
