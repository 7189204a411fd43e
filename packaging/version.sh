#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# version.sh [--revision|--archived] - the version of this tree; the commit that it is of; what packaging/revision has in
# an archive of it.
#
# debian/changelog has the version. While its first entry is UNRELEASED, a build is one of those between releases,
# 0.3.0~git20261128.1a2b3c4d: Debian sorts it before 0.3.0. An archive that git made has the commit in packaging/revision;
# without it the commit is "unknown".
set -eu
cd "$(dirname "$0")/.."

if [ -e .git ]; then
    # The checkout may belong to another user than root.
    revision=$(git -c 'safe.directory=*' log -1 --format=%cs.%h --abbrev=8 2>/dev/null) || revision=
else
    read -r revision <packaging/revision || revision=
fi
case $revision in
    ????-??-??.*) ;;
    *) revision=unknown ;;
esac

case ${1-} in
    --revision) echo "${revision#*.}" && exit ;;
    --archived) echo "$revision" && exit ;;
esac
version=$(sed -n '1s/^crustd (\(.*\)).*/\1/p' debian/changelog)
if sed -n 1p debian/changelog | grep -q ') UNRELEASED;'; then
    version="$version~git$(echo "$revision" | tr -d -)"
fi
echo "$version"
