/* SPDX-License-Identifier: Apache-2.0 */
/* staging.h - a call that stages or unstages a volume, and the volumes that are published as drives
 * instead. Private to reconciler/command/. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

#include "config/config.h"
#include "lib/buffer.h"
#include "lib/result.h"
#include "observe/observe.h"
#include "reconciler/command/clients.h"
#include "reconciler/command/command.h"
#include "store/store.h"

/* The possible places of a volume's directory: those of stage.c. */
enum { RUNTIMES_SPOTS = 2, SPOTS = 4 };

enum place_result { NOT_REQUESTED, UNCHANGED, DONE };

struct staging {
    struct staging *next;
    struct reconciler *reconciler;
    struct drive_wait *wait;                 /* waits for a drive; then it is in no list */
    char sandbox_id[STORE_SANDBOX_ID_BYTES]; /* whom it is published for, or "" */
    bool takes_away;
    bool read_only;
    struct observed_device device; /* of a stage; no name: unknown */
    enum place_result result[SPOTS];
    bool recorded;
    /* Of an unstage, when it came: an observation may find the directory gone before the call is
     * recorded. */
    int64_t known_volume_id;
    int64_t volume_id;
    enum status_code code;
    struct error error;
    reconciler_staged *done; /* NULL: the client is gone */
    void *userdata;
    char target_path[];
};

/* stage_check.c: whether the device, the file system and the sandbox that a client names can be
 * what it says they are. The device has no name where it is not there yet. */
enum status_code stage_check(struct reconciler *reconciler, const struct reconciler_stage *stage,
                             struct observed_device *ret_device, struct error *error);

/* ---- publish.c ---- */

/* The id of the drive that the volume of this path becomes. */
void publish_drive_id(const char *target_path, char ret_id[static DRIVE_ID_CHARS + 1]);

/* Whether a drive has to be detached before the volume counts as unpublished: it has a row,
 * or nothing of the volume is recorded, so that a VM may have it since before the database was
 * lost. */
enum status_code publish_must_detach(struct reconciler *reconciler, const char *target_path,
                                     bool *ret_must, struct error *error);

/* Which way a volume is to be published (docs/decisions.md). */
enum status_code publish_find_way(struct reconciler *reconciler,
                                  const struct reconciler_stage *stage, bool *ret_is_drive,
                                  struct error *error);

/* Has it attached and mounted in its sandbox. As reconciler_attach_drive(). */
enum status_code publish_attach(struct reconciler *reconciler, const struct reconciler_stage *stage,
                                bool with_labels, reconciler_drive_done *done, void *userdata,
                                struct drive_wait **ret_wait, struct error *error);

/* ---- stage files ---------------------------------------------------------------------------- */

/* Metadata directories put in place, and taken away, as a whole.
 *
 * A runtime that reads at any moment finds all of it or nothing, and no temporary names:
 * directories that are incomplete or being removed are in a working directory outside the watched
 * root, on the same file system.
 */

struct stage_place {
    int root;                   /* O_PATH of --root */
    const char *volumes;        /* the watched root; made (0700) where it is missing */
    char staging_dir[PATH_MAX]; /* the working directory, made likewise; nobody else's */
};

/* Outcomes. */
enum {
    STAGE_DONE,
    STAGE_UNCHANGED,  /* it was so already */
    STAGE_IN_THE_WAY, /* something else has the name; error says what */
};

/* What is to stand in a directory. */
struct stage_content {
    const char *text; /* of mountInfo.json */
    size_t length;
    const char *beside; /* an empty file's name; NULL none */
};

/* Puts directory `name` with this content in place. In one that is there already only these files
 * are replaced or made, because others may have put theirs beside them. STAGE_* or -errno. What is
 * in it is on disk when it returns; that it is there, after stage_files_sync(). */
int stage_files_put(const struct stage_place *place, const char *name,
                    const struct stage_content *content, struct error *error);

/* Takes the directory, with the files in it, out of the watched root. STAGE_DONE, STAGE_UNCHANGED
 * (there was none) or -errno: also where something in it is not for crustd to remove
 * (lib/directory.h), and then all of it stays. After stage_files_sync() it stays away; then
 * stage_files_sweep() removes it. */
int stage_files_take(const struct stage_place *place, const char *name, struct error *error);

/* Syncs everything that was put and taken so far. 0 or -errno. */
int stage_files_sync(const struct stage_place *place);

/* Removes what lies in the working directory, at start also what a daemon that was killed has left.
 * 0 (also if there is no such directory) or -errno. */
int stage_files_sweep(const struct stage_place *place, struct error *error);

/* ---- stage request -------------------------------------------------------------------------- */

/* A CSI driver's request, checked, and as mountInfo.json. */

/* Whether it can be put in place at all, in that layout. STATUS_OK or _INVALID_ARGUMENT. */
enum status_code stage_request_check(int root, enum config_stage_layout layout,
                                     const struct reconciler_stage *stage, struct error *error);

/* Whether an option gives the file system an SELinux label: context= and its like. */
bool stage_option_is_label(const char *option);
bool stage_request_has_label(const struct reconciler_stage *stage);

bool stage_request_is_read_only(const struct reconciler_stage *stage);

/* Appends mountInfo.json; the group only if the volume is writable, such options only with
 * with_labels. 0, -EMSGSIZE, -ENOMEM. */
int stage_request_write(const struct reconciler_stage *stage, bool with_labels,
                        struct buffer *text);
