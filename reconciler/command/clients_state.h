/* SPDX-License-Identifier: Apache-2.0 */
/* clients_state.h - the waiting clients, and what the client calls share. Private to
 * reconciler/command/. */
#pragma once

#include "lib/loop.h"
#include "reconciler/command/answers.h"
#include "reconciler/command/clients.h"
#include "reconciler/core/context.h"

struct doctor_abilities;
struct observed_device;
struct store_volume;

/* Volumes that were staged or unstaged and are not on record yet, oldest first. */
struct stagings {
    struct staging *first, *last;
    unsigned count;
    struct loop_timer timer;
    bool due; /* the events about them have been read */
};

struct clients {
    struct clients_options options;
    const struct context *context;
    struct expansion *expansions; /* wait for a resize */
    struct stats_call *stats;     /* wait for a guest */
    struct stagings stagings;     /* wait for their metadata to be on the record */
};

void expansions_done(struct clients *clients);
void stagings_done(struct clients *clients);
void stats_done(struct clients *clients);

/* stage_files.c: whether a path that a driver names can be a volume's. */
enum status_code check_target_path(const char *path, struct error *error);

/* find_volume.c: the volume that a client names; `unknown` is the answer where there is none. */
enum status_code find_volume(struct clients *clients, const struct reconciler_target *target,
                             enum answer unknown, int64_t *ret_volume_id, struct error *error);

/* examine.c: what an examination of the node shows. 0 or -errno with a text. */
int examine_abilities(const struct context *context, struct doctor_abilities *ret_abilities,
                      struct error *error);

/* stage_check.c: whether the device, the file system and the sandbox that a client names can be
 * what it says they are. The device has no name where it is not there yet. */
enum status_code stage_check(struct clients *clients, const struct reconciler_stage *stage,
                             struct observed_device *ret_device, struct error *error);

/* expand.c: the device's size, with what a LUKS header takes from what it stands on. */
uint64_t volume_usable_bytes(const struct context *context, const struct store_volume *volume);
