/* qemu_process.h - what the files that a QEMU reports really are, seen through /proc/PID.
 * Private to hypervisor/.
 *
 * Nothing is ever opened but as O_PATH: names are only looked up and their identity read.
 */
#pragma once

#include <sys/types.h>

#include "reconciler/hypervisor/qemu_drive.h"

struct qemu_process {
    struct qemu_resolver resolver; /* pass its address; valid until done */
    int root;                      /* /proc/PID/root */
    int descriptors;               /* /proc/PID/fd */
};

/* 0 or -errno: the process is gone or may not be looked at. */
int qemu_process_init(struct qemu_process *process, pid_t pid);
void qemu_process_done(struct qemu_process *process);
