/* SPDX-License-Identifier: Apache-2.0 */
/* kata.h - functions that the readers of both Kata runtimes use. */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

#include "lib/json.h"
#include "observe/observe.h"

/* Whether r means that there is nothing at the path, which is not an error. */
bool kata_is_absent(int r);

/* NULL stays NULL. 0 or -ENOMEM. */
int kata_copy(const char *text, char **ret_copy);

/* Only the first problem is kept. 0 or -ENOMEM. */
int kata_set_problem(struct observed_sandbox *sandbox, bool try_again, const char *directory,
                     const char *text);

/* In place of any other problem: one that keeps volumes of the sandbox from being seen. */
int kata_hide_volumes(struct observed_sandbox *sandbox, bool try_again, const char *text);

/* Reads a file of root's in a directory that others may be able to write to. Links may lead to the
 * directory, but the file must not be one. Returns as path_read_below(), and PATH_ABSENT also if
 * there is no such directory. */
int kata_read_file(int root, const char *directory, const char *name, struct buffer *ret_text,
                   struct error *error);

/* Whether a host path leads to a directory. 0 or -errno. */
int kata_has_directory(int root, const char *path, bool *ret_has);

/* Sets ret_path to DIRECTORY/name if that is a socket; otherwise leaves it NULL. */
int kata_try_socket(int root, const char *directory, const char *name, char **ret_path);

/* Finds QEMU's monitor, the first existing and permitted one of: the one that crust-qemu gave the
 * QEMU named sandbox-NAME, DIRECTORY/EXTRA (NULL: none), and the shim's own, DIRECTORY/qmp.sock.
 * DIRECTORY is "" if it is not known. Sets control_socket. If QEMU has yet to make crust-qemu's
 * socket, sets try_again. */
int kata_find_monitor(const struct observe_sandbox_paths *paths, const char *name,
                      const char *directory, const char *extra, struct observed_sandbox *sandbox);

/* ---- records -------------------------------------------------------------------------------- */

/* The runtime's record of its containers' mounts, as devices or directories. */

enum { RECORDS = 2048 };

/* Must be called after the last addition and before the first search. */
void records_sort(struct observed_sandbox *sandbox);

/* The record of this container's mount at this destination. NULL: there is none. */
const struct observed_record *records_find(const struct observed_sandbox *sandbox,
                                           const char *container, const char *destination);

void records_done(struct observed_sandbox *sandbox);

/* Allocates room for the elements of a JSON array, of which the file may have `most`: an enum
 * file_text or -ENOMEM. What is no array has none. */
int kata_make_room(const cJSON *array, int most, size_t element_bytes, void **ret_room,
                   const char *name, struct error *error);

/* ---- the runtimes --------------------------------------------------------------------------- */

/* A sandbox of Kata's Go runtime, from its state directories and its VMM process. Fills in what it
 * finds. OBSERVED, OBSERVED_ABSENT (no directory of this sandbox), OBSERVED_UNFINISHED or -errno;
 * in each case the caller frees it with observed_sandbox_done(). */
int kata_go_observe(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                    struct observed_sandbox *sandbox);

/* The same of Kata's Rust runtime, from its state directory and its processes. */
int kata_rs_observe(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                    struct observed_sandbox *sandbox);

/* ---- persist.json --------------------------------------------------------------------------- */

/* The records of Kata's Go runtime, text in, facts out; no I/O.
 *
 * The runtime writes its structures with Go's own names (src/runtime/virtcontainers/persist/api), a
 * sandbox file and one file per container. Only what crustd uses is read:
 *
 *   sandbox:   Devices[]{ID, Type, Major, Minor, BlockDrive{File, ID, SCSIAddr, VirtPath, DevNo}},
 *              HypervisorState{Type, Pid, Bridges[]{Addr, ParentID, ParentAddr, DeviceAddr{}}},
 *              AgentState{URL}, Config{HypervisorType, HypervisorConfig{BlockDeviceDriver}}
 *   container: State, Mounts[]{Source, Destination, BlockDeviceID}
 */

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

/* ---- guest traits --------------------------------------------------------------------------- */

/* The traits of a sandbox's guest that decide what may be brought into it: whether
 * it is confidential, and whether it shares a directory with the node. */

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
