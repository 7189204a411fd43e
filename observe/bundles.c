/* SPDX-License-Identifier: Apache-2.0 */
/* bundles.c - the bundle directories of each engine, and what was learned about their containers.
 *
 *   containerd, k3s, rke2   …/io.containerd.runtime.v2.task/k8s.io/ID/config.json
 *   CRI-O                   …/overlay-containers/ID/userdata/config.json
 *
 * A directory of bundles is listed at each call, because its times are too coarse to show that
 * nothing changed. A known name costs one look-up in a hash table. A config.json that does not
 * exist yet, or is being written, is tried again at the next call.
 *
 * One call reads a bounded amount. What it has learned is kept, and the next call continues from
 * there. Containers whose sandbox is unknown have to be read for every sandbox, so all calls share
 * one round over them, which ends with the first call that completes.
 */
#include "observe/bundles.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/directory.h"
#include "lib/hash.h"
#include "lib/json.h"
#include "lib/path.h"
#include "observe/observe.h"

/* YOUNG: how often a container that has just been found is observed again, because its bundle
 * appears some milliseconds before what the runtime makes of it. */
enum { CONTAINERS = 65536, YOUNG = 3 };

/* The bounds of one call, and of what is kept between calls. */
enum { FILES = 64, BYTES = 2 * 1024 * 1024, KEPT_BYTES = 8 * 1024 * 1024 };
static const uint64_t READING_NS = 8 * NSEC_PER_MSEC;

struct container {
    UT_hash_handle hh;
    bool is_known; /* its bundle was read */
    bool is_listed;
    bool is_left_out; /* of the call in progress, because too much is kept already */
    unsigned young;
    uint64_t round;                    /* the round in which it was last read */
    struct kept *kept;                 /* read for a call that is not complete yet; NULL */
    char sandbox_id[BUNDLES_ID_BYTES]; /* "" none */
    char id[];
};

struct kept {
    struct bundle bundle;
    size_t bytes;
};

struct parent {
    struct bundles_place place;
    struct container *containers;
    bool is_cut; /* there are more containers than are remembered */
    uint64_t round;
};

struct bundles {
    struct parent *parent[BUNDLES_PARENTS]; /* NULL after the last */
    size_t kept_bytes;
};

/* The state of one call. */
struct reading {
    int root;
    struct bundles *bundles;
    struct parent *parent;
    const char *sandbox_id;
    unsigned files;
    size_t bytes;
    uint64_t until_ns;
};

int bundles_new(struct bundles **ret_bundles)
{
    struct bundles *bundles = calloc(1, sizeof(*bundles));

    if (!bundles)
        return -ENOMEM;
    *ret_bundles = bundles;
    return 0;
}

static void drop_kept(struct bundles *bundles, struct container *container)
{
    if (!container->kept)
        return;
    bundles->kept_bytes -= container->kept->bytes;
    bundle_done(&container->kept->bundle);
    free(container->kept);
    container->kept = NULL;
}

static void forget(struct bundles *bundles, struct parent *parent, struct container *container)
{
    drop_kept(bundles, container);
    HASH_DEL(parent->containers, container);
    free(container);
}

struct bundles *bundles_free(struct bundles *bundles)
{
    struct container *container, *next;

    if (!bundles)
        return NULL;
    for (unsigned i = 0; i < BUNDLES_PARENTS && bundles->parent[i]; i++) {
        HASH_ITER (hh, bundles->parent[i]->containers, container, next)
            forget(bundles, bundles->parent[i], container);
        free(bundles->parent[i]);
    }
    free(bundles);
    return NULL;
}

int bundles_place_of(const char *bundle, const char *id, struct bundles_place *ret_place)
{
    size_t length = strlen(id);

    for (const char *at = strstr(bundle, id); at; at = strstr(at + 1, id)) {
        size_t before = (size_t)(at - bundle);

        if (before < 2 || at[-1] != '/' || (at[length] && at[length] != '/'))
            continue;
        if (before > PATH_MAX || strlen(at + length) >= PATH_MAX)
            return -ENAMETOOLONG;
        memcpy(ret_place->parent, bundle, before - 1);
        ret_place->parent[before - 1] = '\0';
        memcpy(ret_place->rest, at + length, strlen(at + length) + 1);
        return 0;
    }
    return -ENOENT;
}

/* ---- what is remembered ------------------------------------------------------------------ */

static struct parent *parent_new(const struct bundles_place *place)
{
    struct parent *parent = calloc(1, sizeof(*parent));

    if (!parent)
        return NULL;
    parent->place = *place;
    parent->round = 1;
    return parent;
}

/* 0, BUNDLES_CUT if all slots are taken by other directories of bundles, or -ENOMEM. */
static int parent_at(struct bundles *bundles, const struct bundles_place *place,
                     struct parent **ret_parent)
{
    for (unsigned i = 0; i < BUNDLES_PARENTS; i++) {
        struct parent **parent = &bundles->parent[i];

        if (!*parent)
            *parent = parent_new(place);
        if (!*parent)
            return -ENOMEM;
        *ret_parent = *parent;
        if (strcmp((*parent)->place.parent, place->parent) == 0 &&
            strcmp((*parent)->place.rest, place->rest) == 0)
            return 0;
    }
    return BUNDLES_CUT;
}

static bool is_full(const struct parent *parent)
{
    return HASH_COUNT(parent->containers) >= CONTAINERS;
}

/* NULL: there is no memory, or, if is_full(), no room. */
static struct container *container_at(struct parent *parent, const char *id)
{
    size_t length = strlen(id);
    struct container *container;

    HASH_FIND(hh, parent->containers, id, length, container);
    if (container || is_full(parent))
        return container;
    container = calloc(1, sizeof(*container) + length + 1);
    if (!container)
        return NULL;
    memcpy(container->id, id, length + 1);
    HASH_ADD_KEYPTR(hh, parent->containers, container->id, length, container);
    if (!container->hh.tbl) {
        free(container);
        return NULL;
    }
    return container;
}

/* ---- reading ----------------------------------------------------------------------------- */

/* A container whose bundle no pod engine has annotated is a sandbox by itself. */
static int name_sandbox(struct bundle *bundle, const char *id)
{
    if (bundle->sandbox_id)
        return FILE_READ;
    bundle->sandbox_id = strdup(id);
    return bundle->sandbox_id ? FILE_READ : -ENOMEM;
}

/* Only root can have made the bundle or anything in it, because its parent is root's (claims.c). */
static int open_bundle(int root, const struct parent *parent, const char *id, int *ret_directory)
{
    cleanup(fd_closep) int parent_directory = -1;
    char path[PATH_MAX + BUNDLES_ID_BYTES];
    int r = path_open_directory_in_root(root, parent->place.parent, &parent_directory);

    (void)snprintf(path, sizeof(path), "%s%s", id, parent->place.rest);
    return r < 0 ? r : path_open_directory_below(parent_directory, path, ret_directory);
}

/* An enum file_text or -ENOMEM. A file that does not exist or cannot be opened counts as
 * FILE_CUT. */
static int read_bundle(int root, const struct parent *parent, const char *id,
                       struct bundle *ret_bundle, size_t *ret_bytes)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_BUNDLE.bytes);
    cleanup(fd_closep) int directory = -1;
    struct error error;
    int r = open_bundle(root, parent, id, &directory);

    if (r == 0)
        r = path_read_below(directory, "config.json", &text, NULL, NULL);
    *ret_bytes = text.length;
    if (result_is_shortage(r))
        return r;
    if (r != PATH_OK)
        return r == PATH_UNSAFE || r == PATH_TOO_BIG ? FILE_WRONG : FILE_CUT;
    r = bundle_parse(buffer_text(&text), text.length, ret_bundle, &error);
    return r == FILE_READ ? name_sandbox(ret_bundle, id) : r;
}

/* A bundle that will never be readable belongs to no sandbox, and is not tried again. */
static void note_owner(struct container *container, int outcome, const struct bundle *bundle)
{
    const char *id = outcome == FILE_READ ? bundle->sandbox_id : NULL;

    container->is_known = outcome != FILE_CUT;
    if (container->is_known)
        (void)snprintf(container->sandbox_id, sizeof(container->sandbox_id), "%s",
                       id && observe_is_sandbox_id(id) ? id : "");
}

static bool is_of(const struct container *container, const char *sandbox_id)
{
    return container->is_known && strcmp(container->sandbox_id, sandbox_id) == 0;
}

/* Dropped bundles are read again when their sandbox is asked for. */
static void drop_those_of_others(const struct reading *reading)
{
    for (struct container *container = reading->parent->containers; container;
         container = container->hh.next)
        if (container->kept && !is_of(container, reading->sandbox_id)) {
            drop_kept(reading->bundles, container);
            container->round = 0;
        }
}

static int keep(const struct reading *reading, struct container *container, struct bundle *bundle)
{
    struct bundles *bundles = reading->bundles;
    size_t bytes = bundle->bytes;

    if (bundles->kept_bytes + bytes > KEPT_BYTES)
        drop_those_of_others(reading);
    container->is_left_out = bundles->kept_bytes + bytes > KEPT_BYTES;
    if (container->is_left_out)
        return 0; /* more than a pod has */
    container->kept = calloc(1, sizeof(*container->kept));
    if (!container->kept)
        return -ENOMEM;
    *container->kept = (struct kept){*bundle, bytes};
    *bundle = (struct bundle){0};
    bundles->kept_bytes += bytes;
    return 0;
}

static int visit(struct reading *reading, struct container *container)
{
    cleanup(bundle_done) struct bundle bundle = {0};
    size_t bytes;
    int r;

    container->round = reading->parent->round;
    r = read_bundle(reading->root, reading->parent, container->id, &bundle, &bytes);
    reading->files++;
    reading->bytes += bytes;
    if (r < 0)
        return r;
    if (!container->is_known)
        note_owner(container, r, &bundle);
    if (r == FILE_READ && is_of(container, reading->sandbox_id))
        return keep(reading, container, &bundle);
    if (container->is_known)
        container->round = 0; /* so that a call for its own sandbox reads it */
    return 0;
}

/* Whether it still has to be read for this call. */
static bool is_awaited(const struct reading *reading, const struct container *container)
{
    if (container->round == reading->parent->round)
        return false;
    return !container->is_known || (is_of(container, reading->sandbox_id) && !container->kept);
}

static bool is_over(const struct reading *reading)
{
    return reading->files >= FILES || reading->bytes >= BYTES ||
           clock_processor() >= reading->until_ns;
}

/* An enum progress_outcome or -errno. */
static int read_awaited(struct reading *reading)
{
    struct container *container = reading->parent->containers;
    int r = 0;

    for (; r == 0 && container; container = container->hh.next) {
        if (!is_awaited(reading, container))
            continue;
        if (is_over(reading))
            return PROGRESS_MORE;
        r = visit(reading, container);
    }
    return r;
}

/* Marks the containers that exist and forgets those that do not. A container of another sandbox is
 * remembered, so that bundles_owner() can still name its sandbox. */
static int list(const struct reading *reading)
{
    struct parent *parent = reading->parent;
    cleanup(dir_closep) DIR *directory = NULL;
    struct container *container, *next;
    const char *name;
    int r = directory_list_in_root(reading->root, parent->place.parent, &directory);

    if (r < 0 && r != PATH_MISSING)
        return r;
    for (container = parent->containers; container; container = container->hh.next)
        container->is_listed = false;
    parent->is_cut = false;
    while (directory && (name = directory_next(directory))) {
        if (!observe_is_sandbox_id(name))
            continue;
        container = container_at(parent, name);
        if (!container && !is_full(parent))
            return -ENOMEM;
        if (container)
            container->is_listed = true;
        else
            parent->is_cut = true;
    }
    HASH_ITER (hh, parent->containers, container, next) {
        if (!container->is_listed)
            drop_kept(reading->bundles, container);
        if (!container->is_listed &&
            (!container->sandbox_id[0] || is_of(container, reading->sandbox_id)))
            forget(reading->bundles, parent, container);
    }
    return 0;
}

/* Everything is read: passes it to the callback, and drops it even if the callback stops early.
 * An enum bundles_outcome or -errno. */
static int hand_over(const struct reading *reading, bundles_callback *callback, void *userdata)
{
    bool is_cut = reading->parent->is_cut;
    int r = 0;

    reading->parent->round++;
    for (struct container *container = reading->parent->containers; container;
         container = container->hh.next) {
        if (!is_of(container, reading->sandbox_id))
            continue;
        is_cut |= container->is_left_out;
        container->is_left_out = false;
        if (!container->kept)
            continue;
        if (r == 0)
            r = callback(userdata, container->id, &container->kept->bundle);
        drop_kept(reading->bundles, container);
    }
    return r == 0 && is_cut ? BUNDLES_CUT : r;
}

int bundles_each(struct bundles *bundles, int root, const struct bundles_place *place,
                 const char *sandbox_id, bundles_callback *callback, void *userdata)
{
    struct reading reading = {
        .root = root,
        .bundles = bundles,
        .sandbox_id = sandbox_id,
        .until_ns = clock_processor() + READING_NS,
    };
    int r = parent_at(bundles, place, &reading.parent);

    if (r != 0)
        return r;
    r = list(&reading);
    if (r == 0)
        r = read_awaited(&reading);
    if (r == PROGRESS_MORE)
        return BUNDLES_UNFINISHED;
    return r == 0 ? hand_over(&reading, callback, userdata) : r;
}

/* ---- one container ----------------------------------------------------------------------- */

static int refresh_owner(int root, struct parent *parent, struct container *container)
{
    cleanup(bundle_done) struct bundle bundle = {0};
    char path[PATH_MAX + 512];
    struct stat st;
    size_t bytes;
    int r;

    (void)snprintf(path, sizeof(path), "%s/%s", parent->place.parent, container->id);
    r = path_stat_in_root(root, path, &st);
    if (r == PATH_MISSING)
        return BUNDLES_CONTAINER_GONE;
    if (r < 0)
        return r;
    if (container->is_known)
        return container->young && container->young-- ? BUNDLES_OWNER_MAY_CHANGE
                                                      : BUNDLES_OWNER_KNOWN;
    r = read_bundle(root, parent, container->id, &bundle, &bytes);
    if (r < 0)
        return r;
    note_owner(container, r, &bundle);
    container->young = container->sandbox_id[0] ? YOUNG : 0;
    return container->is_known && !container->young ? BUNDLES_OWNER_KNOWN
                                                    : BUNDLES_OWNER_MAY_CHANGE;
}

int bundles_owner(struct bundles *bundles, int root, const char *parent_path,
                  const char *container_id, char ret_sandbox_id[static BUNDLES_ID_BYTES])
{
    ret_sandbox_id[0] = '\0';
    if (!observe_is_sandbox_id(container_id))
        return 0;
    for (unsigned i = 0; i < BUNDLES_PARENTS && bundles->parent[i]; i++) {
        struct parent *parent = bundles->parent[i];
        struct container *container;
        int r;

        if (strcmp(parent->place.parent, parent_path) != 0)
            continue;
        container = container_at(parent, container_id);
        if (!container)
            return -ENOMEM;
        r = refresh_owner(root, parent, container);
        if (r >= 0)
            memcpy(ret_sandbox_id, container->sandbox_id, sizeof(container->sandbox_id));
        if (r == BUNDLES_CONTAINER_GONE)
            forget(bundles, parent, container);
        return r;
    }
    return 0;
}
