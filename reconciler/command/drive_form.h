/* SPDX-License-Identifier: Apache-2.0 */
/* drive_form.h - what the APIs may ask of the core about drives: disks of the node that are mounted
 * in a running VM.
 *
 * Called from the loop, outside the reconcile pass. A call is recorded before anything is done, so
 * a client that is gone, or a crustd that was killed, changes nothing about what becomes of the
 * drive: asked again with the same parameters, the call joins what is under way.
 *
 * Statuses that more than one call has:
 *   INVALID_ARGUMENT     a field is missing or malformed, options contradict `writable`, an option
 *                        is refused or carries a secret, vm_path is protected
 *   NOT_FOUND            no such sandbox lives, no such drive, nothing is at host_path
 *   ALREADY_EXISTS       the id has other parameters, or vm_path has another drive
 *   PERMISSION_DENIED    host_path lies outside drives.host_prefixes; the guest's policy forbids it
 *   FAILED_PRECONDITION  drives.enabled is off, the disk is in use, VMM or guest cannot do it, the
 *                        guest still uses the disk (detach); the message says which and why
 *   RESOURCE_EXHAUSTED   no address is left, or too many drives
 *   UNAVAILABLE          may heal: the monitor is busy, the guest is silent, removal is pending
 *   DEADLINE_EXCEEDED    the work goes on; ask again
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/result.h"
#include "model/drive.h"

struct reconciler;

/* A running container that is to have the drive as well. */
struct reconciler_drive_container {
    const char *container_id;
    const char *path;     /* absolute, in the container */
    const char *sub_path; /* relative, in the drive; "": all of it */
    bool read_only;
};

struct reconciler_drive_attach {
    const char *drive_id; /* the client's; key of idempotency */
    const char *sandbox_id;
    const char *host_path, *vm_path;
    const char *fs_type;
    unsigned options;
    const char *const *option;
    bool writable;
    enum drive_fsck fsck;
    bool has_fs_group;
    uint32_t fs_group;
    enum drive_group_policy fs_group_policy;
    struct drive_limits limits;
    unsigned containers;
    const struct reconciler_drive_container *container;
};

/* What is known of a drive. Texts are borrowed for the callback. */
struct reconciler_drive {
    const char *drive_id, *sandbox_id, *host_path, *vm_path, *fs_type;
    const char *options; /* a JSON array of texts */
    const char
        *containers; /* a JSON array of {container_id, path, sub_path, read_only}; NULL none */
    bool writable;
    struct drive_limits limits;
    const char *serial;
    const char *guest_device; /* "" not known */
    uint64_t size_bytes;      /* 0 not known */
    bool wanted;              /* false: on its way out */
    enum drive_state state;
    enum status_code status; /* of the last failure */
    const char *message;     /* of the last failure, or a remark: what of the limits the VMM does
                                not keep, entries whose group could not be changed; "" none */
};

/* drive: with STATUS_OK. */
typedef void reconciler_drive_done(void *userdata, enum status_code code,
                                   const struct reconciler_drive *drive, const struct error *error);

struct drive_wait;

/* STATUS_OK: exactly one `done` follows, from the loop, never from within; the wait is gone with
 * it. Otherwise error says why not.
 *
 * Attach is done when the disk is mounted at vm_path and synced; detach when it is unmounted,
 * flushed, unplugged and free on the host, or was never there: of an id without a row the
 * VMs are asked first. limits replaces all limits. */
enum status_code reconciler_attach_drive(struct reconciler *reconciler,
                                         const struct reconciler_drive_attach *attach,
                                         reconciler_drive_done *done, void *userdata,
                                         struct drive_wait **ret_wait, struct error *error);
enum status_code reconciler_detach_drive(struct reconciler *reconciler, const char *drive_id,
                                         reconciler_drive_done *done, void *userdata,
                                         struct drive_wait **ret_wait, struct error *error);
enum status_code reconciler_limit_drive(struct reconciler *reconciler, const char *drive_id,
                                        const struct drive_limits *limits,
                                        reconciler_drive_done *done, void *userdata,
                                        struct drive_wait **ret_wait, struct error *error);
/* The client is gone; the work goes on. Returns NULL. */
struct drive_wait *reconciler_drive_cancel(struct drive_wait *wait);

/* At once: the drive of this id that has not ended, or else its newest life. */
typedef int reconciler_drive_callback(void *userdata, const struct reconciler_drive *drive);
enum status_code reconciler_get_drive(struct reconciler *reconciler, const char *drive_id,
                                      reconciler_drive_callback *callback, void *userdata,
                                      struct error *error);
/* At once: those that have not ended; of one sandbox, or of all (NULL). A callback that returns
 * non-zero ends the walk. */
enum status_code reconciler_each_drive(struct reconciler *reconciler, const char *sandbox_id,
                                       reconciler_drive_callback *callback, void *userdata,
                                       struct error *error);

/* ---- drive form ----------------------------------------------------------------------------- */

/* Whether the fields of a request about a drive are there and well-formed: for the
 * APIs, which refuse a request with it, and for the core, which has requests of its own.
 *
 * What needs the node, the configuration or the guest to tell is checked where that is known. The
 * error names a field and never shows an option. STATUS_OK or STATUS_INVALID_ARGUMENT. */

enum { DRIVE_FORM_SANDBOX_CHARS = 128 };

enum status_code drive_form_check_id(const char *drive_id, struct error *error);
enum status_code drive_form_check_limits(const struct drive_limits *limits, struct error *error);
/* All fields. A text that is NULL is missing. */
enum status_code drive_form_check(const struct reconciler_drive_attach *attach,
                                  struct error *error);
