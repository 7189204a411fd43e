#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deps.sh [--demo] BUILD - has everything there that building and testing need, or the demo.
#
# Installs the Debian 12 packages below that are missing. What would start a service or change how
# the machine boots is unpacked instead: the test guest's kernel into BUILD/guest/kernel, promtool and
# prometheus into BUILD/tools, etcd, containerd and what goes with them into BUILD/kubernetes/debian. When all is
# there already it does nothing, and needs neither root nor a network.
set -eu

demo=
[ "${1-}" != --demo ] || { demo=yes; shift; }
[ $# -eq 1 ] || { echo "usage: $0 [--demo] BUILD" >&2; exit 2; }
here=$(dirname "$0")
build=$1

packages="
    build-essential
    libcjson-dev libcurl4-gnutls-dev libev-dev libinih-dev libmicrohttpd-dev libnghttp2-dev libseccomp-dev
    libprotobuf-c-dev libsqlite3-dev nettle-dev protobuf-c-compiler uthash-dev

    btrfs-progs cpio curl e2fsprogs jq mount procps python3 qemu-system-x86 sqlite3 util-linux xfsprogs
"
[ -n "$demo" ] || packages="$packages
    clang clang-format cppcheck gcovr libclang-rt-14-dev libcmocka-dev llvm pyflakes3 strace valgrind
    debhelper fish lintian man-db zsh

    busybox chromium cmark-gfm dmsetup libprotobuf-dev mmdebstrap protobuf-compiler protobuf-compiler-grpc python3-grpcio
    python3-protobuf python3-yaml qemu-utils
"
# Any Go will do: an old one fetches what it cannot build by itself (e2e/go_programs.py).
[ -n "$demo" ] || command -v go >/dev/null || [ -x /usr/local/go/bin/go ] || packages="$packages golang-go"

missing=
for package in $packages; do
    status=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || status=
    [ "$status" = installed ] || missing="$missing $package"
done

if [ -n "$missing" ]; then
    echo "installing:$missing"
    if [ "$(id -u)" -ne 0 ]; then
        echo "$0: that needs root: sudo make deps" >&2
        exit 1
    fi
    apt-get -q update
    # shellcheck disable=SC2086 # the names are words
    DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install $missing
fi

# apt's lists may be absent, or so old that the mirror has dropped what they name.
unpack() {
    "$@" 2>/dev/null && return
    apt-get -q update
    "$@"
}

unpack "$here/guest/fetch-kernel.sh" "$build/guest/kernel"
[ -n "$demo" ] || unpack "$here/fetch-promtool.sh" "$build/tools"
[ -n "$demo" ] || unpack "$here/kubernetes/fetch-debian.sh" "$build/kubernetes/debian"
