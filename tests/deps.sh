#!/bin/sh
# deps.sh KERNELDIR - has everything there that building, testing and the demo need.
#
# Installs the Debian 12 packages below that are missing, and unpacks the kernel of the test guest
# into KERNELDIR. When both are there already it does nothing, and needs neither root nor a network.
set -eu

[ $# -eq 1 ] || { echo "usage: $0 KERNELDIR" >&2; exit 2; }
here=$(dirname "$0")
kernel=$1

packages="
    build-essential
    libcjson-dev libcurl4-gnutls-dev libev-dev libinih-dev libmicrohttpd-dev libnghttp2-dev
    libprotobuf-c-dev libsqlite3-dev nettle-dev protobuf-c-compiler uthash-dev

    clang clang-format cppcheck gcovr libclang-rt-14-dev libcmocka-dev llvm strace valgrind

    btrfs-progs busybox chromium cpio curl dmsetup e2fsprogs mount procps prometheus
    protobuf-compiler protobuf-compiler-grpc python3 python3-grpcio python3-protobuf python3-yaml
    qemu-system-x86 sqlite3 util-linux xfsprogs
"

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
if ! "$here/guest/fetch-kernel.sh" "$kernel" 2>/dev/null; then
    apt-get -q update
    "$here/guest/fetch-kernel.sh" "$kernel"
fi
