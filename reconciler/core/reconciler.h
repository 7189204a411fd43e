/* SPDX-License-Identifier: Apache-2.0 */
/* reconciler.h - the heart: looks again where it is told to, decides, acts one step at a time.
 *
 * One turn, at the end of each turn of the loop: a bounded number of marks is observed, the facts
 * go into the store, each touched volume is decided, everything is committed, and only then acts
 * start. Results of acts come back as facts in a later turn.
 *
 * The reconciler knows no watcher. main.c wires the senses' "look again" to the functions below,
 * and hands in `reconciler_senses`, by which the reconciler has a watch armed before it reads.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "config/config.h"
#include "lib/loop.h"
#include "lib/result.h"
#include "reconciler/command/command.h"

struct instance;
struct store;

enum { RECONCILER_BUNDLES = 8 };

/* The trees of directories it reads; the senses number theirs alike. Those from TREE_BUNDLES on are
 * found while it runs, and come to the senses by watch(). */
enum reconciler_tree {
    TREE_KATA_VOLUMES,
    TREE_CRUST_VOLUMES,
    TREE_GO_SANDBOXES,
    TREE_GO_VMS,
    TREE_RS_SANDBOXES,
    TREE_BUNDLES,
    TREES = TREE_BUNDLES + RECONCILER_BUNDLES,
};

struct reconciler_senses {
    /* Watch one more tree, whose number is to be this. 0 or -errno. */
    int (*watch)(void *userdata, enum reconciler_tree tree, const char *path);
    /* Watch a directory before it is read; outcomes as watch_directories_arm(). */
    int (*arm)(void *userdata, enum reconciler_tree tree, const char *name);
    /* Tell when the process ends; outcomes as watch_processes_add(). */
    int (*pin)(void *userdata, const char *sandbox_id, pid_t pid);
    /* The pid, if its process has ended without a word yet; outcomes as watch_processes_remove().
     */
    pid_t (*unpin)(void *userdata, const char *sandbox_id);
    /* The sweep: compare what cannot be watched for. */
    void (*check)(void *userdata);
    /* Fills ret_health's sources. */
    void (*report)(void *userdata, struct reconciler_health *ret_health);
};

struct reconciler_options {
    struct loop *loop;
    struct store *store;
    struct instance *instance;         /* where the store's file is */
    const struct error *why_in_memory; /* NULL: the store is that file */
    const struct config *config;       /* copied */
    int root;                          /* O_PATH of --root, borrowed */
    const struct reconciler_senses *senses;
    /* Called once, from the loop, when the first scan is complete. May be NULL. */
    void (*synced)(void *userdata);
    /* Called from the loop whenever nothing is left to do now (--once, stopping). May be NULL. */
    void (*settled)(void *userdata);
    void *userdata;
};

int reconciler_new(const struct reconciler_options *options, struct reconciler **ret_reconciler,
                   struct error *error);
struct reconciler *reconciler_free(struct reconciler *reconciler);

/* Begins with a scan of everything. The senses must be awake by now: watch first, then scan. */
void reconciler_start(struct reconciler *reconciler);

/* Looks at everything and forgets what waits: all that failed is tried at once. */
void reconciler_look_afresh(struct reconciler *reconciler);

/* Look again. All only mark. A tree that a sense wants looked at as a whole is another one than
 * before. */
void reconciler_look_at_directory(struct reconciler *reconciler, enum reconciler_tree tree,
                                  const char *name);
void reconciler_look_at_tree(struct reconciler *reconciler, enum reconciler_tree tree);
void reconciler_look_at_device(struct reconciler *reconciler, uint32_t major, uint32_t minor);
/* A SCSI device, by its path below /sys, says that its capacity changed. */
void reconciler_look_at_announcement(struct reconciler *reconciler, const char *devpath);
void reconciler_look_at_all_volumes(struct reconciler *reconciler);
void reconciler_look_at_everything(struct reconciler *reconciler);
void reconciler_look_at_mounts(struct reconciler *reconciler);

/* The VMM of a sandbox ended before our eyes; its sandbox is looked at again. */
void reconciler_saw_exit(struct reconciler *reconciler, const char *sandbox_id, pid_t pid);

/* Takes over a new configuration (paths stay as they were at start) and looks at everything. */
void reconciler_configure(struct reconciler *reconciler, const struct config *config);

/* No new act starts; `settled` is called once those in flight are done and recorded. */
void reconciler_stop(struct reconciler *reconciler);
