# SPDX-License-Identifier: Apache-2.0
# fish completion for crustctl
function __crustctl_candidates
    set -l words (commandline -opc)
    set -e words[1]
    for line in (/usr/libexec/crustctl/candidates $words 2>/dev/null)
        if test "$line" = @files
            __fish_complete_path (commandline -ct)
        else
            printf '%s\n' $line
        end
    end
end
complete -c crustctl -f -a '(__crustctl_candidates)'
