/* SPDX-License-Identifier: Apache-2.0 */
/* kernel.h - what the kernel lets this process do, and as whom it runs. Private to doctor/.
 *
 * Each feature is tried, because a system-call filter or a namespace can take away what the version
 * promises; judging is pure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "doctor/finding.h"

/* Results of system calls: 0 or -errno. */
struct kernel_facts {
    char release[65]; /* uname(2) */
    int openat2;
    int pidfd_open;
    int uevents;         /* listening to the kernel's own group */
    bool large_buffer;   /* a receive buffer beyond net.core.rmem_max may be had */
    int vsock;           /* a socket of AF_VSOCK: 0, or why not as an errno */
    int64_t now_seconds; /* CLOCK_REALTIME */

    uid_t uid;
    bool may_trace;     /* CAP_SYS_PTRACE */
    int first_process;  /* inspecting process 1: its mounts and its root */
    bool user_is_first; /* lib/namespaces.h */
    bool shows_all_processes;
};

void kernel_read(struct kernel_facts *ret_facts);
void kernel_judge(const struct kernel_facts *facts, struct findings *findings);
void kernel_judge_process(const struct kernel_facts *facts, struct findings *findings);
