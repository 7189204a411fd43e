/* SPDX-License-Identifier: Apache-2.0 */
/* helper.h - the route `helper`: a program that is brought into a guest for about a second, and
 * grows file systems there or reports their usage.
 *
 * One helper serves all volumes of its sandbox that wait for it, and includes the others. At most
 * one runs in a sandbox and guest.helpers on the node; resizes take precedence over reports. A
 * sandbox's usage is requested at most once in HELPER_FRESH_NS: in between the last answer is used,
 * with its age.
 *
 * What an earlier daemon left behind, on record or recognised by its name in the share of a live
 * sandbox, is removed before the sandbox gets another helper.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "agent-client/agent_messages.h"
#include "agent-client/guest_call.h"
#include "config/config.h"
#include "lib/clock.h"
#include "lib/result.h"
#include "model/reason.h"
#include "model/sandbox.h"
#include "observe/kata.h"
#include "store/store.h"

struct context;
struct helper_call;
struct helper_run;
struct helpers;
struct hypervisor_call;

/* ---- report.c ------------------------------------------------------------------------------- */

/* The helper's answer: one line of JSON (docs/guest-helper.md). It comes out of a guest, so
 * everything is bounded and checked, and texts are fit to be shown. */

enum {
    HELPER_REPORT_BYTES = 64 * 1024,
    HELPER_VOLUMES = 32, /* paths in one report */
    HELPER_TEXT_BYTES = 160,
};

/* The codes of a path's error. */
enum helper_fault {
    HELPER_FAULT_NONE,
    HELPER_FAULT_NOT_MOUNTED,
    HELPER_FAULT_NOT_A_BLOCK_DEVICE,
    HELPER_FAULT_UNSUPPORTED,
    HELPER_FAULT_REFUSED,
    HELPER_FAULT_READ_ONLY,
    HELPER_FAULT_ERRORS,
    HELPER_FAULT_SHUT_DOWN,
    HELPER_FAULT_NO_CAPABILITY,
    HELPER_FAULT_BUSY,
    HELPER_FAULT_TIMED_OUT,
    HELPER_FAULT_LIMIT,
    HELPER_FAULT_GROWING,
    HELPER_FAULT_FAILED, /* and any code that is unknown here */
    HELPER_FAULTS,
};

struct helper_volume {
    enum helper_fault fault;
    char text[HELPER_TEXT_BYTES];  /* why; "" without a fault */
    char layer[HELPER_TEXT_BYTES]; /* what is between the file system and the disk; "" nothing */
    uint64_t device_bytes;         /* 0 unknown */
    struct agent_stats stats;      /* after growing; has_bytes false: unknown */
};

struct helper_report {
    unsigned volumes;
    struct helper_volume volume[HELPER_VOLUMES]; /* in the order of the given paths */
};

/* Parses the report of a helper that was given these paths, in this order. 0; -EBADMSG: it is not a
 * valid report. */
int helper_report_parse(const char *text, size_t length, const char *const *path, unsigned paths,
                        struct helper_report *ret_report, struct error *error);

/* What a helper's report says about one volume. Pure. */
struct helper_verdict {
    enum volume_reason reason; /* NONE: its file system fills the device, or its usage was read */
    char text[HELPER_TEXT_BYTES];
    uint64_t device_bytes; /* according to the guest; 0 unknown */
    struct agent_stats stats;
};

/* volume: the entries for all places at which the volume may be mounted. If there are several, the
 * one on a device of this size is taken; growing the others did no harm, because a file system only
 * ever grows to the size of its own device. grew: the helper was to grow, otherwise only to
 * report. */
void helper_judge(const struct helper_volume *volume, unsigned volumes, uint64_t device_bytes,
                  bool grew, struct helper_verdict *ret_verdict);

/* ---- share.c -------------------------------------------------------------------------------- */

/* Outcomes of helper_program_open(); the error says which file and why. */
enum {
    HELPER_PROGRAM_OK,
    HELPER_PROGRAM_MISSING, /* missing, or not fit to be run as root in a guest */
    HELPER_PROGRAM_FOREIGN, /* built for another processor architecture than this node's */
};

enum { HELPER_PROGRAM_BYTES = 64 * 1024 * 1024 };

/* Opens the helper's program on this node (guest.helper_file) for reading, and checks it: a regular
 * file of root's that nobody else may write, an ELF program for the machine that crustd itself runs
 * on. HELPER_PROGRAM_* or -errno. */
int helper_program_open(const struct config *config, int *ret_fd, struct error *error);

/* The node's directory that a sandbox shares with its guest, and the helper in it.
 *
 * Both runtimes share one directory per sandbox with the guest, read-only for the guest:
 *
 *     Go      /run/kata-containers/shared/sandboxes/ID/mounts/          seen in the guest as
 *             /run/kata-containers/shared/containers/
 *     Rust    /run/kata-containers/shared/sandboxes/ID/rw/passthrough/  seen in the guest as
 *             /run/kata-containers/shared/containers/passthrough/
 *
 * A helper is one directory there, with a name that no other program uses:
 *
 *     crust-0123456789abcdef/agent
 *
 * Everything is opened below the sandbox's directory, without links and without another mount;
 * anything with another name is never touched.
 */

enum { HELPER_NAME_BYTES = 32, HELPER_GUEST_PATH_BYTES = 128 };

#define HELPER_PROGRAM_NAME "agent"

/* Outcomes of helper_share_open(). */
enum {
    HELPER_SHARE_OK,
    HELPER_SHARE_ABSENT, /* the sandbox has none, or it is not a plain directory of its own */
    HELPER_SHARE_LATER,  /* the Rust runtime makes it with the sandbox's first container */
};

/* Opens the directory, for reading names and making directories in it. The error says what is
 * missing. -errno: a local failure (EMFILE, ENOMEM, EIO …), which says nothing about the share. */
int helper_share_open(int root, enum kata_runtime runtime, const char *sandbox_id, int *ret_fd,
                      struct error *error);

/* The path under which a guest of this runtime sees the directory of that name. */
void helper_share_guest_path(enum kata_runtime runtime, const char *name,
                             char ret_path[static HELPER_GUEST_PATH_BYTES]);

/* "crust-" and 16 random hexadecimal digits. 0 or -errno. */
int helper_name_make(char ret_name[static HELPER_NAME_BYTES]);
bool helper_name_is_ours(const char *name);

/* Makes the directory with a copy of the program. On failure nothing of it is left. 0; -EEXIST,
 * -ENOSPC, … */
int helper_share_place(int share, const char *name, int program, struct error *error);

/* Removes the directory, but nothing that helper_share_place() does not make, now or up to version
 * 0.2. 0 also if it does not exist; -ENOTEMPTY if it contains something else; -ELOOP, -ENOTDIR, …
 * if it is not a directory. */
int helper_share_remove(int share, const char *name);

enum helper_share_presence { HELPER_SHARE_HAS_NOT, HELPER_SHARE_HAS };

/* Whether a directory of that name exists: an enum helper_share_presence, or -errno: unknown at
 * present. */
int helper_share_has(int share, const char *name);

/* The directory of a drive's container: the serial and random digits, because a guest takes a
 * directory for the one that had its name until a second ago. Up to version 0.2 it is the serial
 * alone. The second returns as helper_share_has(). */
int helper_share_name_drive(const char *serial, char ret_name[static HELPER_NAME_BYTES]);
int helper_share_find_drive(int share, const char *serial, char ret_name[static HELPER_NAME_BYTES]);

/* Calls back with the names of helpers in the share; a bounded number. callback: 0 continues. 0,
 * -errno or the callback's result. */
int helper_share_each(int share, int (*callback)(void *userdata, const char *name), void *userdata);

/* ---- targets.c ------------------------------------------------------------------------------ */

/* The volumes of a sandbox that a helper is given, and where the guest has them. */

enum { HELPER_CANDIDATES = 8 };

struct helper_target {
    int64_t volume_id, binding_id;
    uint64_t device_bytes;
    unsigned candidates;
    unsigned candidate[HELPER_CANDIDATES]; /* indexes of the paths that may be the volume's */
};

struct helper_targets {
    bool grow; /* otherwise only report */
    /* Places that may be those of volumes that must not be resized: none of them is passed to the
     * helper. */
    unsigned forbidden;
    bool withheld;      /* a place was withheld for that reason */
    bool all_forbidden; /* too many to list, so only known places are passed */
    char forbidden_path[HELPER_VOLUMES][STORE_ADDRESS_BYTES];
    unsigned targets;
    struct helper_target target[HELPER_VOLUMES];
    unsigned paths;
    char path[HELPER_VOLUMES][STORE_ADDRESS_BYTES];
};

/* Must be called first, with `grow` set. 0 or -errno. */
int helper_targets_begin(const struct context *context, const char *sandbox_id, int64_t sandbox_ref,
                         struct helper_targets *targets);

/* Adds the volume's places, as long as there is room for them. */
void helper_targets_add(const struct context *context, const struct store_volume *volume,
                        struct helper_targets *targets);

/* Adds all other volumes of the sandbox that the helper can include: to grow, those whose device
 * the VMM has at its full size; to report, all that the guest has. */
void helper_targets_complete(const struct context *context, const char *sandbox_id,
                             int64_t sandbox_ref, struct helper_targets *targets);

/* What the record and the configuration say about the routes to a volume's guest. Fills in
 * everything but the call itself, its route and its deadline. Borrows the volume, whose address it
 * may fill in, and the socket's path. */
void guest_routes_describe(const struct context *context, struct store_volume *volume,
                           char shim_socket[static GUEST_ADDRESS_BYTES],
                           struct guest_request *ret_request);

/* Observes a sandbox's guest before anything is brought into it: by its VMM's arguments, or by
 * asking the VMM, depending on hypervisor_guest_source() for its kind. Zero-initialised, and
 * embedded in its owner. */
struct helper_guest {
    struct hypervisor_call *call;
    bool is_known;
    struct guest_traits traits; /* if they are known */
    struct error error;         /* why not, else */
    void (*done)(struct helper_guest *guest);
};

/* Exactly one `done` follows, from the loop or from within. */
void helper_guest_start(struct helper_guest *guest, const struct context *context,
                        const struct store_helper_run *sandbox,
                        void (*done)(struct helper_guest *guest));
void helper_guest_stop(struct helper_guest *guest);

/* ---- run.c ---------------------------------------------------------------------------------- */

/* One helper in one guest: placed, run, removed. For reconciler/helper/ and reconciler/drive/.
 *
 *   recorded → program placed in the share → container run → directory removed → record deleted
 *
 * After a kill at any step, the possible remains are on record; a clean-up takes the same steps
 * backwards.
 */

/* What one run is for. */
struct helper_task {
    /* If it has a name, what an earlier run left under that is removed; else the run makes one. */
    struct store_helper_run sandbox;
    bool grow;     /* otherwise only report */
    bool withheld; /* places may be those of volumes that must not be resized */
    unsigned paths;
    const char *path[HELPER_VOLUMES + 1]; /* in the guest; copied; ended by NULL */
    const char *call; /* of a drive (drive_client.h), in place of the paths; copied. NULL: none */
};

struct helper_outcome {
    enum volume_reason reason; /* NONE: there is a report; of a clean-up: nothing is left */
    struct error error;        /* if it is not NONE */
    struct helper_report report;
    const char *answer; /* to the call, in place of the report; borrowed for the callback */
    size_t answer_length;
    bool left; /* something may be left in the guest or its share under the sandbox's name */
    struct error removal_error; /* why, if something is left */
};

typedef void helper_run_done(struct helper_run *run, const struct helper_outcome *outcome,
                             void *userdata);

/* Exactly one `done` follows from the loop, never from within. 0 or -ENOMEM. */
int helper_run_new(const struct context *context, const struct helper_task *task,
                   helper_run_done *done, void *userdata, struct helper_run **ret_run);
/* Returns NULL. The remains of a running helper stay, on record. */
struct helper_run *helper_run_free(struct helper_run *run);

/* The name of its container and directory; "" before it has one. */
const char *helper_run_name(const struct helper_run *run);

/* ---- helpers.c: those that wait for one ----------------------------------------------------- */

#define HELPER_FRESH_NS (300 * NSEC_PER_SEC)

enum helper_purpose { HELPER_RESIZE, HELPER_STATS };

/* targets.c: whether this route exists for the volume. */
bool helper_is_possible(const struct config *config, const struct store_volume *volume);

/* Exactly one `done` follows, from the loop and never from within; the call is freed then.
 * wait_ns: how long the call may wait for a helper to begin; 0: no limit. 0 or -ENOMEM. */
int helper_call_new(struct helpers *helpers, const struct store_volume *volume,
                    enum helper_purpose purpose, uint64_t wait_ns, guest_helper_done *done,
                    void *userdata, struct helper_call **ret_call);
/* Returns NULL. A helper that runs for the call continues. */
struct helper_call *helper_call_free(struct helper_call *call);

struct helpers *helpers_new(const struct context *context); /* borrowed. NULL: no memory */
struct helpers *helpers_free(struct helpers *helpers);      /* returns NULL */
/* After the first scan: finds and removes what an earlier daemon left. */
void helpers_start(struct helpers *helpers);
/* A helper that another module ran could not be removed: that is tried again until it succeeds.
 * NULL: it was not tried yet. */
void helpers_note_leftover(struct helpers *helpers, int64_t sandbox_ref, const char *name,
                           const struct error *error);
/* At times: forgets old answers. */
void helpers_sweep(struct helpers *helpers);
/* crustd is stopping: no further helper begins, and calls that wait for one are ended. A helper
 * that still runs after resize.call_timeout_seconds is left in the guest, on record. */
void helpers_stop(struct helpers *helpers);
/* No helper runs, and none is about to. */
bool helpers_are_idle(const struct helpers *helpers);
