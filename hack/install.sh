#!/usr/bin/env bash
# Installs what is missing on a Debian or Ubuntu machine; asks nothing.
#   hack/install.sh runtime    containerd, runc, CNI plugins, iproute2, iptables
#   hack/install.sh compiler   a C compiler: Go's race detector links with it
set -euo pipefail

missing=()

need() { # need PACKAGE COMMAND...: any of the commands will do
  local package=$1 c
  shift
  for c in "$@"; do
    if command -v "$c" > /dev/null || [ -x "$c" ]; then return; fi
  done
  missing+=("$package")
}

export PATH=$PATH:/usr/sbin:/sbin
case ${1:-} in
runtime)
  need containerd containerd
  need runc runc
  need containernetworking-plugins /usr/lib/cni/bridge /opt/cni/bin/bridge
  need iproute2 ip
  need iptables iptables
  ;;
compiler)
  need gcc "${CC:-gcc}" cc
  [ -e /usr/include/stdlib.h ] || missing+=(libc6-dev)
  ;;
*)
  sed -n '2,4p' "$0"
  exit 2
  ;;
esac

if [ ${#missing[@]} -eq 0 ]; then exit 0; fi
if ! command -v apt-get > /dev/null; then
  echo "install.sh: missing: ${missing[*]} (Debian's package names); there is no apt-get here, so install them by hand" >&2
  exit 1
fi
if [ "$(id -u)" != 0 ]; then
  echo "install.sh: missing: ${missing[*]}; run this as root: apt-get install -y --no-install-recommends ${missing[*]}" >&2
  exit 1
fi
echo "install.sh: installing ${missing[*]} with apt-get"
export DEBIAN_FRONTEND=noninteractive
if ! apt-get install -y -q --no-install-recommends "${missing[@]}" > /dev/null 2>&1; then
  # The package lists of a fresh image are empty or old.
  apt-get update -q > /dev/null
  apt-get install -y -q --no-install-recommends "${missing[@]}" > /dev/null
fi
