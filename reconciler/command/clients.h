/* SPDX-License-Identifier: Apache-2.0 */
/* clients.h - clients that wait for an answer to a stage, resize or stats call.
 *
 * The calls themselves are command.h's, and are described there. A pass tells them what it did by
 * the functions below.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/config.h"
#include "lib/buffer.h"
#include "lib/loop.h"
#include "model/volume.h"
#include "observe/observe.h"
#include "reconciler/act/actor.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/command.h"
#include "reconciler/command/drive_form.h"
#include "reconciler/core/context.h"

struct doctor_abilities;

/* ---- resizes (expand.c) ---- */

/* The volume was decided, within the pass, so that a debt can be recorded: 0 or -errno. */
int expansions_note(struct reconciler *reconciler, int64_t volume_id);
/* The pass was rolled back; it was committed. */
void expansions_forget(struct reconciler *reconciler);
void expansions_answer(struct reconciler *reconciler);

/* ---- metadata put in place and taken away (stage.c) ---- */

/* Volumes that were staged or unstaged and are not recorded yet, oldest first. */
struct stagings {
    struct staging *first;
    struct loop_timer timer;
    bool due; /* the events about them have been read */
};

/* Whether a pass has any to record; records a bounded number of them, within the pass; after the
 * commit, syncs their changes and answers them. 0 or -errno of the store. */
bool stagings_are_due(const struct reconciler *reconciler);
int stagings_record(struct reconciler *reconciler);
int stagings_answer(struct reconciler *reconciler);
bool stagings_wait(const struct reconciler *reconciler);
/* The store failed: all that wait are told so. */
void stagings_fail(struct reconciler *reconciler, const char *why);
/* Removes directories that were unstaged, or left half done by a daemon that was killed. */
void stagings_sweep(const struct reconciler *reconciler);

/* ---- the node (examine.c) ---- */

/* An examination that is kept: for metrics, status and the service manager. */
struct examination {
    struct loop_timer timer;
    struct reconciler_findings findings;
};

/* Examines the node now, and again every hour. */
void examination_begin(struct reconciler *reconciler);

/* ---- what the calls share ----------------------------------------------------------------------
 */

/* Nobody of these is answered any more. */
void expansions_done(struct reconciler *reconciler);
void stagings_done(struct reconciler *reconciler);
void stats_done(struct reconciler *reconciler);

/* stage_files.c: whether a path that a driver names can be a volume's. */
enum status_code check_target_path(const char *path, struct error *error);

/* find_volume.c: the volume that a client names; `unknown` is the answer where there is none. */
enum status_code find_volume(struct reconciler *reconciler, const struct reconciler_target *target,
                             enum answer unknown, int64_t *ret_volume_id, struct error *error);

/* examine.c: what an examination of the node shows. 0 or -errno with a text. */
int examine_abilities(const struct context *context, struct doctor_abilities *ret_abilities,
                      struct error *error);

/* find_volume.c: the device's size, with what a LUKS header takes of its lower device. */
uint64_t volume_usable_bytes(const struct context *context, const struct store_volume *volume);

/* ---- the answer to a resize (expand.c) ---- */

struct expand_facts {
    const struct store_volume
        *volume; /* decided since the client asked, nothing in flight for it */
    enum resize_policy policy;
    uint64_t usable_bytes;                /* volume_usable_bytes() */
    uint64_t required_bytes, limit_bytes; /* 0: any */
};

/* Outcomes beside enum status_code. */
enum { EXPAND_WAIT = -1, EXPAND_LATER = -2 };

/* STATUS_OK: the guest has it. EXPAND_LATER: no sandbox has the volume yet, and its file system
 * will be grown when one does: STATUS_OK once that debt is recorded. EXPAND_WAIT: something is yet
 * to be tried. Else error says why. Pure. */
int expand_answer(const struct expand_facts *facts, struct error *error);

/* Whether something forbids the resize that no attempt changes: then no answer may be OK. */
bool expand_is_barred(const struct store_volume *volume);

/* ---- stats poll ----------------------------------------------------------------------------- */

/* Asks guests, at a steady pace, for usage and condition of their file systems.
 *
 * Each bound volume is asked once in guest.stats_seconds. When follows from its binding's number,
 * so that the questions are spread evenly. One sandbox is asked one question at a time, and the
 * node at most STATS_POLLS; a guest that hangs costs one of these until resize.call_timeout_seconds
 * are over. A guest that did not answer is asked at every second, fourth … 32nd of its moments.
 *
 * Each answer is recorded at once; if the store fails, the next poll asks again.
 */

enum { STATS_POLLS = 16 };

/* Time that has passed, in CLOCK_BOOTTIME, and guest.stats_seconds. */
struct stats_span {
    uint64_t from_ns, to_ns, period_ns;
};

/* Whether a binding's moment came within it, of a guest that did not answer so often in a row. */
bool stats_poll_is_moment(const struct stats_span *span, int64_t binding_id, uint32_t failures);

struct stats_poll {
    struct loop_timer timer;
    uint64_t polled_ns;   /* volumes whose moment came before are asked */
    struct key_queue due; /* volume ids */
    struct slots slots;
};

/* Begins, or continues with another configuration; guests are asked once the first scan is
 * complete. */
void stats_poll_start(struct reconciler *reconciler);

/* ---- a call that stages or unstages --------------------------------------------------------- */

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
