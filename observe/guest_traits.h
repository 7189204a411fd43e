/* SPDX-License-Identifier: Apache-2.0 */
/* guest_traits.h - the traits of a sandbox's guest that decide what may be brought into it: whether
 * it is confidential, and whether it shares a directory with the node. */
#pragma once

#include <errno.h>

#include "observe/observe.h"

enum guest_share {
    GUEST_SHARE_UNKNOWN,
    GUEST_SHARE_NONE, /* shared_fs = "none" */
    GUEST_SHARE_DIRECTORY,
};

struct guest_traits {
    bool is_confidential; /* memory hidden from the node: SEV, SNP, TDX, Secure Execution, … */
    enum guest_share share;
};

enum guest_traits_failure {
    GUEST_TRAITS_NO_SOURCE = -EOPNOTSUPP, /* neither source covers this kind */
};

/* By the kind of VMM or its arguments (hypervisor_guest_source()), and by persist.json of the Go
 * runtime. 0, PROCESS_GONE, an enum guest_traits_failure or another -errno. */
int guest_traits_observe(const struct observe_sandbox_paths *paths, enum hypervisor_kind kind,
                         const char *sandbox_id, pid_t vmm_pid, struct guest_traits *ret_traits);

/* Traits according to a VMM's arguments, each followed by a NUL. */
void guest_traits_from_arguments(const char *arguments, size_t length, struct guest_traits *traits);
