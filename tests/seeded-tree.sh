# SPDX-License-Identifier: Apache-2.0
# seeded-tree.sh - what the test of a check begins with: $tree is an empty directory to seed violations in, which is gone
# at the end; $check is the check of the test that sources this; $failed is its exit status.

set -eu
for one in "${0%-test.sh}" "${0%-test.sh}".*; do
    [ ! -e "$one" ] || check=$(realpath "$one")
done
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failed=0
