# SPDX-License-Identifier: Apache-2.0
# bash completion for crustctl
_crustctl()
{
    local current=${COMP_WORDS[COMP_CWORD]} line
    COMPREPLY=()
    while IFS= read -r line; do
        line=${line%%$'\t'*}
        if [[ $line == @files ]]; then
            compopt -o filenames
            mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$current")
        elif [[ $line == "$current"* ]]; then
            COMPREPLY+=("$line")
        fi
    done < <(/usr/libexec/crustctl/candidates "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)
}
complete -F _crustctl crustctl
