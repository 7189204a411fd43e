/* SPDX-License-Identifier: Apache-2.0 */
/* persist.h - persist.json of Kata's Go runtime, text in, facts out; no I/O.
 *
 * The runtime writes its structures with Go's own names (src/runtime/virtcontainers/persist/api), a
 * sandbox file and one file per container. Only what crustd uses is read:
 *
 *   sandbox:   Devices[]{ID, Type, Major, Minor, BlockDrive{File, ID, SCSIAddr, VirtPath, DevNo}},
 *              HypervisorState{Type, Pid, Bridges[]{Addr, ParentID, ParentAddr, DeviceAddr{}}},
 *              AgentState{URL}, Config{HypervisorType, HypervisorConfig{BlockDeviceDriver}}
 *   container: State, Mounts[]{Source, Destination, BlockDeviceID}
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/json.h"
#include "lib/result.h"

enum { PERSIST_DEVICES = 512, PERSIST_MOUNTS = 4096 };

struct persist_device {
    char *id;
    char *drive_id;       /* NULL unknown */
    char *file;           /* as given to the hypervisor; NULL unknown */
    char *guest_path;     /* where the agent mounts it; NULL: cannot be derived */
    int64_t major, minor; /* -1: a regular file */
};

struct persist_sandbox {
    char *hypervisor; /* as written; NULL unknown */
    char *agent_url;  /* NULL unknown */
    pid_t pid;        /* 0 unknown */
    unsigned devices;
    struct persist_device *device; /* block devices only */
};

struct persist_mount {
    char *source;      /* the device if one is attached, otherwise the path that is shared */
    char *destination; /* NULL unknown */
    char *device_id;   /* NULL: not attached as a block device */
};

struct persist_container {
    bool ended;
    unsigned mounts;
    struct persist_mount *mount;
};

/* Where the agent mounts a device that the Go runtime identifies by `source`: a PCI path ("02/01"),
 * a SCSI address, a name. *ret_path NULL: too long. 0 or -ENOMEM. */
int persist_guest_path(const char *source, char **ret_path);

/* An enum file_text or -ENOMEM. A member of an unexpected type counts as unknown. */
int persist_parse_sandbox(const char *text, size_t length, struct persist_sandbox *ret_sandbox,
                          struct error *error);
void persist_sandbox_done(struct persist_sandbox *sandbox);

int persist_parse_container(const char *text, size_t length,
                            struct persist_container *ret_container, struct error *error);
void persist_container_done(struct persist_container *container);
