/* SPDX-License-Identifier: Apache-2.0 */
/* sandboxes.h - sandboxes, and what their own records say. */
#pragma once

#include "model/sandbox.h"
#include "store/bounds.h"

struct store_drive {
    const char *mount_source; /* persist.json's Mounts[].Source; NULL unknown */
    const char *file;         /* BlockDrive.File */
    int64_t major, minor;     /* -1: a regular file */
    const char *drive_id;     /* BlockDrive.ID */
    const char *guest_path;   /* NULL: not derivable */
};

/* What a container has at a path that it mounts, as its runtime recorded it. */
enum store_carrier {
    STORE_CARRIER_ENDED,
    STORE_CARRIER_UNKNOWN,
    STORE_CARRIER_DIRECTORY,
    STORE_CARRIER_DEVICE,
};

/* A volume path that the sandbox's own records name. */
struct store_claim {
    const char *path;
    const char *source;     /* bundle, persist */
    const char *guest_path; /* NULL unknown */
    enum store_carrier carrier;
    int64_t drive; /* which of the sandbox's drives carries it; -1 unknown */
    dev_t given;   /* of a raw block claim, the device that the container was given; 0 */
};

struct store_sandbox {
    const char *sandbox_id;
    enum kata_runtime runtime;
    enum hypervisor_kind hypervisor;
    pid_t vmm_pid;
    uint64_t vmm_start_ns;      /* when the VMM started, CLOCK_BOOTTIME */
    const char *control_socket; /* NULL: no monitor that crustd may use */
    const char *agent_address;  /* NULL unknown */
    const char *pod_namespace, *pod_name;
    unsigned drives;
    const struct store_drive *drive;
    unsigned claims;
    const struct store_claim *claim; /* no path twice */
};

/* A live sandbox. Identity is (id, VMM pid, start time): another VMM under the same id ends the old
 * row. A changed monitor or agent address forgets what the sandbox was remembered to be unable to.
 */
int store_put_sandbox(struct store *store, const struct store_sandbox *sandbox,
                      int64_t *ret_sandbox_ref, bool *ret_changed);

/* The device that a container was given for the raw block claim at this path; 0: none was. */
int store_find_given_device(struct store *store, const char *path, dev_t *ret_device);

/* Why some volumes of a live sandbox may not be seen; NULL: all are. */
int store_set_problem(struct store *store, const char *sandbox_id, const char *problem,
                      bool *ret_changed);

/* A live sandbox with a problem: "SANDBOX: PROBLEM"; "": there is none. */
int store_find_problem(struct store *store, char *ret_text, size_t size);

/* No process of it is left. Closes its mappings. ret_changed false if it was not alive. */
int store_end_sandbox(struct store *store, const char *sandbox_id, bool *ret_changed);

/* Whether the VMM of a live sandbox has outlived its shim. Then its drives are those that the VMM
 * has open (none: not known, so those on record stay), and what it claims no longer changes. Of two
 * sandboxes on record that have one VMM none is orphaned: Kata's VM factory knows it by another id.
 */
int store_set_orphaned(struct store *store, const char *sandbox_id, bool orphaned,
                       const struct store_drive *held, unsigned count, bool *ret_changed);

/* The recorded VMM of a live sandbox; pid 0: there is no such sandbox. */
int store_find_vmm(struct store *store, const char *sandbox_id, pid_t *ret_pid,
                   uint64_t *ret_start_ns);

/* Where the agent listens, as the sandbox itself said. It stays while the records do not say. */
int store_set_agent_address(struct store *store, int64_t sandbox_ref, const char *address);

/* The VMM's version, as it said itself. */
int store_set_vmm_version(struct store *store, int64_t sandbox_ref, const char *version);

/* The ability of a route into a guest: "", ROUTE_ABLE, or a reason. */
int store_set_ability(struct store *store, int64_t sandbox_ref, enum guest_route route,
                      const char *ability);

/* ---- helper runs ---------------------------------------------------------------------------- */

enum { STORE_HELPER_BYTES = 32 };

/* A sandbox, and a helper that may be in its guest: its container and its directory have one name.
 */
struct store_helper_run {
    char name[STORE_HELPER_BYTES]; /* "" where a sandbox alone is meant */
    int64_t sandbox_ref;
    bool is_alive; /* the sandbox */
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    enum kata_runtime runtime;
    enum hypervisor_kind hypervisor;
    pid_t vmm_pid;         /* 0: not known */
    uint64_t vmm_start_ns; /* CLOCK_BOOTTIME */
    char control_socket[STORE_ADDRESS_BYTES];
    char agent_address[STORE_ADDRESS_BYTES];
};

/* Before anything of it is made; grows: it changes something, and is journaled. */
int store_put_helper_run(struct store *store, int64_t sandbox_ref, const char *name, bool grows);
/* Nothing of it is left. */
int store_forget_helper_run(struct store *store, const char *name);
/* What an earlier daemon had left of it was removed: a journal line alone. */
int store_note_helper_removed(struct store *store, int64_t sandbox_ref, const char *name);

/* One sandbox, of whatever time; ret_run's sandbox_ref is 0 if it is not known any more. */
int store_get_helper_sandbox(struct store *store, int64_t sandbox_ref,
                             struct store_helper_run *ret_run);
/* All live sandboxes; of_helpers: that of each helper that may be left, of whatever time. The
 * callback must not write; returning non-zero ends the walk. */
typedef int store_sandbox_callback(void *userdata, const struct store_helper_run *sandbox);
int store_each_sandbox(struct store *store, bool of_helpers, store_sandbox_callback *callback,
                       void *userdata);
