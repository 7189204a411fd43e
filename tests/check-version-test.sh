#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check-version-test.sh - seeds other versions and sees check-version.sh find them.

. "$(dirname "$0")/seeded-tree.sh"

mkdir -p "$tree/debian" "$tree/docs" "$tree/config/deploy" "$tree/config/helm/crustd"

# A tree in which all is as it should be.
sound() {
    printf 'crustd (1.2.3) unstable; urgency=medium\n\ncrustd (1.2.2) unstable; urgency=medium\n' >"$tree/debian/changelog"
    printf '# Changes\n\n## 1.2.3\n\n## 1.2.2\n' >"$tree/CHANGELOG.md"
    printf 'docker build -t crustd:1.2.3 -f Containerfile .\n' >"$tree/README.md"
    printf 'images:\n  - name: crustd\n    newTag: 1.2.3\n' >"$tree/config/deploy/kustomization.yaml"
    printf 'version: 1.2.3\nappVersion: "1.2.3"\n' >"$tree/config/helm/crustd/Chart.yaml"
}

# refused FILE TEXT PLACE: with this text in a file, this place is named
refused() {
    sound
    printf "$2" >"$tree/$1"
    if found=$("$check" "$tree") || ! printf '%s\n' "$found" | grep -qF "$3"; then
        echo "not refused: $1: $2: $found"
        failed=1
    fi
}

sound
"$check" "$tree" || failed=1
refused debian/changelog 'crustd (1.2.4) unstable; urgency=medium\n' 'README.md:1:'
refused debian/changelog 'nonsense\n' 'debian/changelog:1:'
refused CHANGELOG.md '# Changes\n\n## 1.2.2\n' 'CHANGELOG.md:3:'
refused CHANGELOG.md '# Changes\n' 'CHANGELOG.md:1:'
refused README.md 'crustd:1.2.2 is the image\n' 'README.md:1:'
refused README.md 'crustd:1.2.30 is the image\n' 'README.md:1:'
refused config/deploy/kustomization.yaml '    newTag: 1.2.2\n' 'config/deploy/kustomization.yaml:1:'
refused config/deploy/kustomization.yaml '    newTag: 1.2.3\n# crust-guest-agent:1.2.2\n' 'config/deploy/kustomization.yaml:2:'
refused config/helm/crustd/Chart.yaml 'appVersion: "1.2.0"\n' 'config/helm/crustd/Chart.yaml:1:'
exit $failed
