# SPDX-License-Identifier: Apache-2.0
"""A daemon in a mount namespace of its own, whose table it takes for that of process 1: no other test has its
mounts in the way."""


def in_own_mounts(prepare):
    """What the daemon is run under. prepare: what the shell does in that namespace before."""
    # "exec" keeps the number.
    return ["unshare", "--mount", "--propagation", "private", "sh", "-euc",
            f'{prepare}\nmount --bind /proc/$$/mountinfo /proc/1/mountinfo; exec "$@"', "sh"]
