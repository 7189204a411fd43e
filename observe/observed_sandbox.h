/* SPDX-License-Identifier: Apache-2.0 */
/* observed_sandbox.h - a sandbox: its VMM, drives and claims. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/buffer.h"
#include "model/sandbox.h"
#include "observe/bundles.h"
#include "observe/observe.h"

struct bundles;
struct bundles_place;
struct process_table;

enum { OBSERVE_SANDBOX_ID_BYTES = 129, OBSERVE_QUESTIONS = 64 };

struct observed_drive {
    char *mount_source; /* NULL unknown */
    char *file;
    int64_t major, minor; /* -1: a regular file */
    char *drive_id;
    char *guest_path; /* NULL: cannot be derived */
};

/* How a container has a path that it mounts, according to the runtime's own record. */
enum observed_carrier {
    CARRIER_ENDED, /* the container has ended */
    CARRIER_UNKNOWN,
    CARRIER_DIRECTORY, /* the path itself, shared with the guest */
    CARRIER_DEVICE,    /* a block device attached to the VM */
};

/* One mount of one container, as the runtime recorded it. */
struct observed_record {
    char *container;
    char *source;
    char *destination;
    enum observed_carrier carrier;
    int64_t drive; /* index of the device among the sandbox's drives; -1 none */
};

/* A volume path that the sandbox's records name. */
struct observed_claim {
    char *path;
    const char *source; /* static: bundle, persist */
    char *guest_path;   /* NULL: not known */
    enum observed_carrier carrier;
    int64_t drive; /* likewise */
    dev_t given; /* a raw block claim of the pod, by its publish path: the container's device; 0 */
    bool is_confidential, grows_file_systems; /* as the pod's annotations say (bundles.h) */
};

struct observed_sandbox {
    bool alive; /* a VMM process with this sandbox in its arguments exists */
    enum kata_runtime runtime;
    enum hypervisor_kind hypervisor;
    pid_t vmm_pid;
    uint64_t vmm_start_ns; /* CLOCK_BOOTTIME */
    char *control_socket;  /* a host path below root; NULL: none that may be used */
    char *agent_address;   /* as written in persist.json; NULL unknown */
    char *problem;         /* a fault in one of its files; NULL: none */
    bool hides_volumes;    /* it has volumes that are not seen, or may have: the problem says why */
    bool try_again;
    bool unrecorded; /* the VMM's process is all that there is of it */
    unsigned drives;
    struct observed_drive *drive;
    unsigned claims;
    struct observed_claim *claim; /* sorted by path, each path once */
    unsigned records;
    struct observed_record *record;
    char *pod_namespace, *pod_name; /* NULL unknown */
    char *bundles;                  /* the directory of its containers' bundles; NULL */
};

/* What observations of different sandboxes share. */
struct observe_cache {
    struct process_table *processes;
    bool is_held; /* observe_cache_hold() */
    struct bundles *bundles;
    struct question { /* observe/process_table.h */
        char sandbox_id[OBSERVE_SANDBOX_ID_BYTES];
        uint64_t first_ns, last_ns; /* 0: free */
    } question[OBSERVE_QUESTIONS];
};

/* grow_annotation: as for bundles_new(). */
int observe_cache_new(const char *grow_annotation, struct observe_cache **ret_cache);
struct observe_cache *observe_cache_free(struct observe_cache *cache);

/* Reads processes until all that run now are known. An enum progress_outcome or -errno. */
int observe_cache_refresh(struct observe_cache *cache);
/* Goes on with a reading of processes that has begun. An enum progress_outcome or -errno. */
int observe_cache_read_on(struct observe_cache *cache);
/* While it is held, an observation takes the processes as they are known: none is UNFINISHED for
 * their sake. */
void observe_cache_hold(struct observe_cache *cache, bool is_held);

struct observe_sandbox_paths {
    int root;
    const char *kata_go_sandboxes, *kata_go_vms, *kata_rs_sandboxes;
    const char *const *bundles, *const *kubelet; /* paths.bundles, paths.kubelet */
    unsigned bundle_directories, kubelets;
    bool extra_monitor, main_monitor; /* resize.qemu_monitor: which sockets may be used */
    uint32_t agent_port;
    /* The device that a container was given for the raw block claim at a path, as was recorded
     * before: the path may lead to another one by now. 0: none. */
    dev_t (*given_device)(const void *userdata, const char *path);
    const void *userdata;
    struct observe_cache *cache;
};

/* Observes everything about sandbox `sandbox_id`, after checking the id
 * (^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$). OBSERVED, OBSERVED_ABSENT (no trace of it, nor a VMM that
 * is known), OBSERVED_UNFINISHED (what was read so far is remembered) or -errno. */
int observe_sandbox(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                    struct observed_sandbox *ret_sandbox);
void observed_sandbox_done(struct observed_sandbox *sandbox);

bool observe_is_sandbox_id(const char *name);

enum observed_owner {
    OBSERVED_OWNER_KNOWN,
    OBSERVED_CONTAINER_GONE,   /* the bundle does not exist; the sandbox is its last known one */
    OBSERVED_OWNER_MAY_CHANGE, /* not readable yet, or made just now: call again soon */
};

/* The sandbox of the container whose bundle is at PARENT/container_id, PARENT being some sandbox's
 * `bundles`. "" if it has none, or it is not known. An enum observed_owner or -errno. */
int observe_bundle_owner(const struct observe_sandbox_paths *paths, const char *parent,
                         const char *container_id,
                         char ret_sandbox_id[static OBSERVE_SANDBOX_ID_BYTES]);

/* ---- sandbox arguments ---------------------------------------------------------------------- */

/* The sandbox that the arguments of a VMM or a shim name; no I/O.
 *
 *   QEMU               -name sandbox-ID[,debug-threads=on], -device vhost-vsock-…,guest-cid=N
 *   Cloud Hypervisor   --api-socket …/ID/ch-api.sock
 *   Firecracker        --id ID, or --api-sock …/ID/run/fc.sock
 *   a shim             -id ID (containerd's shim API, which CRI-O speaks as well)
 *
 * The arguments do not prove which program a process runs: any process may have any arguments.
 */

enum process_role { PROCESS_VMM, PROCESS_SHIM };

struct sandbox_arguments {
    char id[OBSERVE_SANDBOX_ID_BYTES];
    enum process_role role;
    enum hypervisor_kind hypervisor; /* according to argv[0] */
    uint32_t guest_cid;              /* of QEMU's vhost-vsock device; 0: none */
};

/* arguments: as /proc/PID/cmdline, each followed by a NUL. False if they name no sandbox, or are
 * those of Firecracker's jailer or of a command of the shim's program ("start", "delete"). */
bool sandbox_arguments_read(const struct buffer *arguments, struct sandbox_arguments *ret_named);

/* ---- orphan --------------------------------------------------------------------------------- */

enum observed_shim {
    OBSERVED_SHIM_RUNS,
    OBSERVED_SHIM_ENDED,
    OBSERVED_SHIM_UNKNOWN,
    OBSERVED_SHIM_UNFINISHED, /* not all processes are read yet: call again */
};

/* Of the sandbox whose VMM is this process. With records it takes more to be sure
 * (observed_sandbox.c). An enum observed_shim; what cannot be read is UNKNOWN. */
int observe_shim(struct observe_cache *cache, const char *sandbox_id, pid_t vmm_pid,
                 uint64_t vmm_start_ns, bool has_records);

/* Calls back with each VMM that names a sandbox in the last reading of all processes. If there was
 * none, one is begun. 0, what the callback returned, or PROGRESS_MORE: that one is not complete,
 * call again. */
int observe_each_vmm(struct observe_cache *cache,
                     int (*callback)(void *userdata, const char *sandbox_id, pid_t pid,
                                     uint64_t start_ns),
                     void *userdata);

/* The block devices that the VMM has open, as drives that have only a number; one may be there
 * twice. 0, or -errno: they cannot all be read, or the process has ended. */
int observe_held_drives(pid_t pid, uint64_t start_ns, struct observed_sandbox *ret_held);

/* ---- claims --------------------------------------------------------------------------------- */

/* Fills claims, pod and bundles of the sandbox, and its problem if it may have volumes that are not
 * seen. passthrough: derive guest paths by the scheme of Kata's Rust runtime. OBSERVED,
 * OBSERVED_UNFINISHED or -errno. */
int claims_read(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                const struct bundles_place *place, bool passthrough,
                struct observed_sandbox *sandbox);

/* Calls back with every place in a guest of Kata's Rust runtime that the path may have, where its
 * records do not tell which one it is. callback: 0 continues. 0, -errno (-EOVERFLOW: it
 * has more containers or mounts than are read; -EBADMSG: a bundle cannot be read; -EBUSY: ask
 * again) or the callback's result. */
typedef int claims_place(void *userdata, const char *guest_path);
int claims_each_place(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                      pid_t vmm_pid, const char *path, claims_place *callback, void *userdata);

/* How many containers the sandbox has beside its own, by their bundles: an engine makes a bundle
 * before the runtime makes the container, and takes it away when the container has been deleted.
 * OBSERVED, OBSERVED_ABSENT (no bundle of the sandbox is found), OBSERVED_UNFINISHED or -errno. */
int claims_count_containers(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                            unsigned *ret_count);

/* If no bundle is found: claims what the runtime recorded as shared directories. 0 or -ENOMEM. */
int claims_from_records(struct observed_sandbox *sandbox);
