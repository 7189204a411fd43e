/* SPDX-License-Identifier: Apache-2.0 */
/* sandbox.h - a sandbox: its VMM, drives and claims. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "model/hypervisor.h"
#include "model/runtime.h"

struct observed_drive {
    char *mount_source; /* NULL unknown */
    char *file;
    int64_t major, minor; /* -1: a regular file */
    char *drive_id;
    char *guest_path; /* NULL: not derivable */
};

/* What a container has in the place of a path that it mounts, by the runtime's own record. */
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
    int64_t drive; /* as above */
};

struct observed_sandbox {
    bool alive; /* a VMM process with this sandbox in its arguments exists */
    enum kata_runtime runtime;
    enum hypervisor_kind hypervisor;
    pid_t vmm_pid;
    uint64_t vmm_start_ns; /* CLOCK_BOOTTIME */
    char *control_socket;  /* as a host path below root; NULL none that may be used */
    char *agent_address;   /* as it stands in persist.json; NULL unknown */
    char *problem;         /* a file of it that did not read well, NULL */
    bool try_again;
    unsigned drives;
    struct observed_drive *drive;
    unsigned claims;
    struct observed_claim *claim; /* by path, each once */
    unsigned records;
    struct observed_record *record;
    char *pod_namespace, *pod_name; /* NULL unknown */
    char *bundles;                  /* the directory that holds its containers' bundles, NULL */
};

/* What reading one sandbox taught about the others: processes, bundles. */
struct observe_cache;
int observe_cache_new(struct observe_cache **ret_cache);
struct observe_cache *observe_cache_free(struct observe_cache *cache);

struct observe_sandbox_paths {
    int root;
    const char *kata_go_sandboxes, *kata_go_vms, *kata_rs_sandboxes;
    const char *const *bundles; /* paths.bundles */
    unsigned bundle_directories;
    bool extra_monitor, main_monitor; /* resize.qemu_monitor: which sockets may be used */
    uint32_t agent_port;
    struct observe_cache *cache;
};

/* Everything about sandbox `sandbox_id`, whose name is checked first
 * (^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$). OBSERVED, OBSERVED_ABSENT (no trace of it at all),
 * OBSERVED_UNFINISHED (what was read so far is remembered) or -errno. */
int observe_sandbox(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                    struct observed_sandbox *ret_sandbox);
void observed_sandbox_done(struct observed_sandbox *sandbox);

bool observe_is_sandbox_id(const char *name);

enum { OBSERVE_SANDBOX_ID_BYTES = 129 };

/* Whose container has its bundle at PARENT/container_id, PARENT being some sandbox's `bundles`. ""
 * if it is nobody's, or not known. Outcomes: 0, 1 it is gone (then it is whose it last was), 2
 * look again soon: its bundle is not whole yet, or has only just been made. */
int observe_bundle_owner(const struct observe_sandbox_paths *paths, const char *parent,
                         const char *container_id,
                         char ret_sandbox_id[static OBSERVE_SANDBOX_ID_BYTES]);
