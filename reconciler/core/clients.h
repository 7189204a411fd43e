/* SPDX-License-Identifier: Apache-2.0 */
/* clients.h - clients that wait for an answer, and what they name. Private to reconciler/. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/loop.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/command.h"

struct expansion;
struct staging;
struct stats_call;
struct store_volume;

/* Volumes that were put in place or taken away, and are not on the record yet: oldest first. */
struct stagings {
    struct staging *first, *last;
    unsigned count;
    struct loop_timer timer;
    bool due; /* the events about them have been read */
};

/* What cannot be a row: whom to tell. */
struct clients {
    struct expansion *expansions; /* of a growth */
    struct stats_call *stats;     /* of a guest's word */
    struct stagings stagings;     /* of their metadata's being on the record */
};

/* stage_request.c: whether a path that a driver names can be a volume's. */
enum status_code command_check_target_path(const char *path, struct error *error);

/* target.c: the volume that a client names; `unknown` is the answer where there is none. */
enum status_code command_find_volume(struct reconciler *reconciler,
                                     const struct reconciler_target *target, enum answer unknown,
                                     int64_t *ret_volume_id, struct error *error);

/* volume.c: where the host has mounted the device, or what stands on it; NULL nowhere. */
const char *volume_host_use(struct reconciler *reconciler, uint32_t major, uint32_t minor);

/* examine.c: what the daemon's own examination of the node shows. 0 or -errno with a text. */
struct doctor_abilities;
int examine_abilities(struct reconciler *reconciler, struct doctor_abilities *ret_abilities,
                      struct error *error);

/* stage_check.c: whether the device, the file system and the sandbox that a client names can be
 * what it says they are. */
struct reconciler_stage;
enum status_code stage_check(struct reconciler *reconciler, const struct reconciler_stage *stage,
                             struct error *error);

/* reconciler.c: in the next turn, its device too. */
void reconciler_look_at_volume(struct reconciler *reconciler, int64_t volume_id);

/* expand.c: the device's size, with what a LUKS header takes from what it stands on. */
uint64_t volume_usable_bytes(const struct reconciler *reconciler,
                             const struct store_volume *volume);

/* expand.c: the volume was decided, within the turn, so that a debt can go on record (0 or -errno);
 * all that was decided is to be decided again; a turn was committed; the store is another one. */
int expansions_note(struct reconciler *reconciler, int64_t volume_id);
void expansions_forget(struct reconciler *reconciler);
void expansions_answer(struct reconciler *reconciler);
void expansions_end(struct reconciler *reconciler);

/* stage.c: whether a turn is to record any; a bounded number of them, within the turn; it was
 * committed: what they did is made to last, and they are answered. 0 or -errno of the store. */
bool stagings_are_due(const struct reconciler *reconciler);
int stagings_record(struct reconciler *reconciler);
int stagings_answer(struct reconciler *reconciler);
/* The store did not take it, or is another one: all that wait are told so. */
void stagings_fail(struct reconciler *reconciler, const char *why);
/* Removes what was taken away, or was left half done by a daemon that was killed. */
void stagings_sweep(struct reconciler *reconciler);

/* Nobody is told anything more. */
void stagings_done(struct reconciler *reconciler);
void expansions_done(struct reconciler *reconciler);
void stats_done(struct reconciler *reconciler);
