/* qemu_drive.h - which of a QEMU's drives is the device, and may its size be re-read. No I/O of its
 * own: what a reported file is, a resolver says. Private to hypervisor/.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "reconciler/hypervisor/hypervisor.h"
#include "reconciler/hypervisor/qemu_report.h"

/* Who a file is: a block device by its number, anything else by where it lies. */
struct qemu_identity {
    bool block_device;
    dev_t device; /* block device: its own number; else that of its file system */
    ino_t inode;  /* 0 for a block device */
};

bool qemu_identity_equal(const struct qemu_identity *a, const struct qemu_identity *b);

/* The process' view of its files. Each returns 0, or -errno when it can't tell. */
struct qemu_resolver {
    int (*path)(struct qemu_resolver *resolver, const char *path,
                struct qemu_identity *ret_identity);
    int (*descriptor)(struct qemu_resolver *resolver, int fd, struct qemu_identity *ret_identity);
    /* Every block device or file that the process has open, at most `size`; their number. */
    size_t (*held)(struct qemu_resolver *resolver, struct qemu_identity *ret_identities,
                   size_t size);
};

struct qemu_wanted {
    enum hypervisor_act act;
    struct qemu_identity identity;
    const char *recorded_drive; /* NULL: unknown */
};

/* Finds the root node whose file is the wanted device. HYPERVISOR_DONE: *ret_drive is set, borrowed
 * from the report, and `act` may be done to it. READ_ONLY and UNSUPPORTED set it as well, to say
 * which drive was meant; DRIVE_NOT_FOUND and MISMATCH leave it alone. `error` says why not. */
enum hypervisor_outcome qemu_drive_find(const struct qemu_report *report,
                                        const struct qemu_wanted *wanted,
                                        struct qemu_resolver *resolver,
                                        const struct qemu_node **ret_drive, struct error *error);

/* What QEMU's words of refusal mean. `error_class` is QMP's, "" over HMP. */
enum hypervisor_outcome qemu_refusal(const char *error_class, const char *text);
