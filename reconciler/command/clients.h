/* SPDX-License-Identifier: Apache-2.0 */
/* clients.h - clients that wait for an answer to a stage, resize or stats call.
 *
 * The calls themselves are command.h's, and are described there. They know the controller core only
 * by `struct clients_core`. A pass tells them what it did by the functions below.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/loop.h"
#include "model/volume.h"
#include "reconciler/command/command.h"
#include "reconciler/command/drives.h"

struct actor;
struct clients;
struct context;
struct helpers;

/* The functions of the controller core that the calls need, beside the context. */
struct clients_core {
    bool (*is_full)(void *userdata); /* directories beyond STORE_VOLUMES were passed over */
    /* Within a transaction: a metadata directory is read now; a path that was only known by its
     * hash is recognised. 0 or -errno of the store. */
    int (*observe_entry)(void *userdata, enum volume_layout layout, const char *name);
    int (*resolve_path)(void *userdata, const char *target_path);
    /* Where the host has mounted the device, or what stands on it; NULL nowhere. Not NULL, either,
     * while that cannot be told. */
    const char *(*find_host_use)(void *userdata, uint32_t major, uint32_t minor);
    /* drives.h, of this core. */
    enum status_code (*attach_drive)(void *userdata, const struct reconciler_drive_attach *attach,
                                     reconciler_drive_done *done, void *done_userdata,
                                     struct drive_wait **ret_wait, struct error *error);
    enum status_code (*detach_drive)(void *userdata, const char *drive_id,
                                     reconciler_drive_done *done, void *done_userdata,
                                     struct drive_wait **ret_wait, struct error *error);
    enum status_code (*get_drive)(void *userdata, const char *drive_id,
                                  reconciler_drive_callback *callback, void *callback_userdata,
                                  struct error *error);
    struct drive_wait *(*cancel_drive)(struct drive_wait *wait); /* returns NULL */
};

struct clients_options {
    const struct context *context; /* all borrowed */
    struct actor *actor;
    struct helpers *helpers;
    const struct clients_core *core;
    void *userdata;
};

struct clients *clients_new(const struct clients_options *options); /* NULL: no memory */
struct clients *clients_free(struct clients *clients); /* nobody is told anything more */

/* ---- resizes (expand.c) ---- */

enum status_code expand_begin(struct clients *clients, const struct reconciler_expand *asked,
                              reconciler_expanded *done, void *userdata,
                              struct expansion **ret_expansion, struct error *error);
/* The volume was decided, within the pass, so that a debt can go on record: 0 or -errno. */
int expansions_note(struct clients *clients, int64_t volume_id);
/* The pass was rolled back; it was committed; the store is another one. */
void expansions_forget(struct clients *clients);
void expansions_answer(struct clients *clients);
void expansions_end(struct clients *clients);

/* ---- metadata put in place and taken away (stage.c) ---- */

enum status_code stage_begin(struct clients *clients, const struct reconciler_stage *stage,
                             reconciler_staged *done, void *userdata, struct staging **ret_staging,
                             struct error *error);
enum status_code unstage_begin(struct clients *clients, const char *target_path,
                               reconciler_staged *done, void *userdata,
                               struct staging **ret_staging, struct error *error);
/* Whether a pass has any to record; records a bounded number of them, within the pass; after the
 * commit, syncs their changes and answers them. 0 or -errno of the store. */
bool stagings_are_due(const struct clients *clients);
int stagings_record(struct clients *clients);
int stagings_answer(struct clients *clients);
bool stagings_wait(const struct clients *clients);
/* The store failed, or is another one: all that wait are told so. */
void stagings_fail(struct clients *clients, const char *why);
/* Removes directories that were unstaged, or left half done by a daemon that was killed. */
void stagings_sweep(const struct clients *clients);

/* ---- stats (stats.c) ---- */

enum status_code stats_begin(struct clients *clients, const struct reconciler_target *target,
                             reconciler_stats_done *done, void *userdata,
                             struct stats_call **ret_call, struct error *error);

/* ---- the node (examine.c, examine.c) ---- */

int examine_node(const struct context *context, struct buffer *ret_json, struct error *error);

/* An examination that is kept: for metrics, status and the service manager. */
struct examination {
    const struct context *context;
    struct loop_timer timer;
    struct reconciler_findings findings;
};

/* Examines the node now, and again every hour. */
void examination_begin(struct examination *examination, const struct context *context);
void examination_done(struct examination *examination);
int find_capabilities(const struct context *context, struct reconciler_names *ret_names,
                      struct error *error);
int find_file_systems(const struct context *context, struct reconciler_names *ret_names);
