#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check-version.sh [TREE] - refuses a version that differs from debian/changelog's, from which the Makefile has its own.
#
# Repeated are: the first release in CHANGELOG.md, the tags of our images in manifests, charts and instructions.

set -eu
cd "${1:-$(dirname "$0")/..}"

version=$(sed -n '1s/^crustd (\(.*\)).*/\1/p' debian/changelog)
[ -n "$version" ] || { echo "debian/changelog:1: has no version"; exit 1; }

first=$(grep -n -m 1 '^## ' CHANGELOG.md || :)
{
    [ "${first#*:## }" = "$version" ] || echo "CHANGELOG.md:${first:-1: no release}"
    # Beside an example driver's own image.
    grep -rnE '\bcrustd:[0-9]+\.[0-9]' README.md docs config --include='*.md' --include='*.yaml' --include=Containerfile |
        grep -vE "crustd:$version([ \",]|\$)" || :
    grep -rnE '\bcrust-guest-agent:[0-9]' docs config --include='*.md' --include='*.yaml' --include=Containerfile |
        grep -vE "crust-guest-agent:$version([ \",]|\$)" || :
    grep -rnE '^ *(newTag|appVersion|version):' config --include='*.yaml' | grep -vE "[: \"]$version\"?\$" || :
} | {
    status=0
    while IFS= read -r line; do
        echo "$line: is not $version"
        status=1
    done
    exit $status
}
