/* SPDX-License-Identifier: Apache-2.0 */
/* bundles.c - bundle directories by engine, and what was learned of the containers in them.
 *
 *   containerd, k3s, rke2   …/io.containerd.runtime.v2.task/k8s.io/ID/config.json
 *   CRI-O                   …/overlay-containers/ID/userdata/config.json
 *
 * A directory of bundles is listed at each question, for its own times are too coarse to say that
 * nothing changed; a name that is known costs one look into a hash table. A config.json that is
 * not there yet, or is being written, is tried again with the next question.
 */
#include "observe/bundles.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/directory.h"
#include "lib/hash.h"
#include "lib/json.h"
#include "lib/path.h"
#include "observe/observe.h"

/* YOUNG: how often a container that has just been met is to be looked at again: its bundle comes
 * before what the runtime makes of it, by some milliseconds. */
enum { CONTAINERS = 65536, YOUNG = 3 };

struct container {
    UT_hash_handle hh;
    bool is_known; /* its bundle was read */
    bool is_listed;
    unsigned young;
    char sandbox_id[BUNDLES_ID_BYTES]; /* "" nobody's */
    char id[];
};

struct parent {
    struct bundles_place place; /* parent[0] '\0': unused */
    struct container *containers;
};

struct bundles {
    struct parent parent[BUNDLES_PARENTS];
};

int bundles_new(struct bundles **ret_bundles)
{
    struct bundles *bundles = calloc(1, sizeof(*bundles));

    if (!bundles)
        return -ENOMEM;
    *ret_bundles = bundles;
    return 0;
}

static void forget(struct parent *parent, struct container *container)
{
    HASH_DEL(parent->containers, container);
    free(container);
}

struct bundles *bundles_free(struct bundles *bundles)
{
    struct container *container, *next;

    if (!bundles)
        return NULL;
    for (unsigned i = 0; i < BUNDLES_PARENTS; i++)
        HASH_ITER (hh, bundles->parent[i].containers, container, next) {
            forget(&bundles->parent[i], container);
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

/* NULL: more engines on one node than anybody has. */
static struct parent *parent_at(struct bundles *bundles, const struct bundles_place *place)
{
    for (unsigned i = 0; i < BUNDLES_PARENTS; i++) {
        struct parent *parent = &bundles->parent[i];

        if (!parent->place.parent[0])
            parent->place = *place;
        if (strcmp(parent->place.parent, place->parent) == 0 &&
            strcmp(parent->place.rest, place->rest) == 0)
            return parent;
    }
    return NULL;
}

static struct container *container_at(struct parent *parent, const char *id)
{
    size_t length = strlen(id);
    struct container *container;

    HASH_FIND(hh, parent->containers, id, length, container);
    if (container || HASH_COUNT(parent->containers) >= CONTAINERS)
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

/* Where no engine for pods says whose container it is, it is a sandbox by itself. */
static int name_sandbox(struct bundle *bundle, const char *id)
{
    if (bundle->sandbox_id)
        return FILE_READ;
    bundle->sandbox_id = strdup(id);
    return bundle->sandbox_id ? FILE_READ : -ENOMEM;
}

/* Nobody but root can have made it, or anything in it: its parent is root's (claims.c). */
static int open_bundle(int root, const struct parent *parent, const char *id, int *ret_directory)
{
    cleanup(fd_closep) int parent_directory = -1;
    char path[PATH_MAX + BUNDLES_ID_BYTES];
    int r = path_open_directory_in_root(root, parent->place.parent, &parent_directory);

    (void)snprintf(path, sizeof(path), "%s%s", id, parent->place.rest);
    return r < 0 ? r : path_open_directory_below(parent_directory, path, ret_directory);
}

/* An enum file_text or -ENOMEM; a file that is not there, or not to be read, counts as cut. */
static int read_bundle(int root, const struct parent *parent, const char *id,
                       struct bundle *ret_bundle)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_BUNDLE.bytes);
    cleanup(fd_closep) int directory = -1;
    struct error error;
    int r = open_bundle(root, parent, id, &directory);

    if (r == 0)
        r = path_read_below(directory, "config.json", &text, NULL, NULL);
    if (result_is_shortage(r))
        return r;
    if (r != PATH_OK)
        return r == PATH_UNSAFE || r == PATH_TOO_BIG ? FILE_WRONG : FILE_CUT;
    r = bundle_parse(buffer_text(&text), text.length, ret_bundle, &error);
    return r == FILE_READ ? name_sandbox(ret_bundle, id) : r;
}

/* One that will never read well is nobody's, and is not tried again. */
static void note_owner(struct container *container, int outcome, const struct bundle *bundle)
{
    const char *id = outcome == FILE_READ ? bundle->sandbox_id : NULL;

    container->is_known = outcome != FILE_CUT;
    if (container->is_known)
        (void)snprintf(container->sandbox_id, sizeof(container->sandbox_id), "%s",
                       id && observe_is_sandbox_id(id) ? id : "");
}

static int visit(int root, struct parent *parent, struct container *container,
                 const char *sandbox_id, bundles_callback *callback, void *userdata)
{
    cleanup(bundle_done) struct bundle bundle = {0};
    int r;

    if (container->is_known && strcmp(container->sandbox_id, sandbox_id) != 0)
        return 0;
    r = read_bundle(root, parent, container->id, &bundle);
    if (r < 0)
        return r;
    if (!container->is_known)
        note_owner(container, r, &bundle);
    if (r != FILE_READ || strcmp(container->sandbox_id, sandbox_id) != 0)
        return 0;
    return callback(userdata, container->id, &bundle);
}

/* Marks who is there, and forgets who is not; whoever asks about another sandbox's container that
 * went is still to be told whose it was. */
static int list(int root, struct parent *parent, const char *sandbox_id)
{
    cleanup(dir_closep) DIR *directory = NULL;
    struct container *container, *next;
    const char *name;
    int r = directory_list_in_root(root, parent->place.parent, &directory);

    if (r < 0 && r != PATH_MISSING)
        return r;
    for (container = parent->containers; container; container = container->hh.next)
        container->is_listed = false;
    while (directory && (name = directory_next(directory)))
        if (observe_is_sandbox_id(name) && (container = container_at(parent, name)))
            container->is_listed = true;
    HASH_ITER (hh, parent->containers, container, next) {
        if (!container->is_listed &&
            (!container->sandbox_id[0] || strcmp(container->sandbox_id, sandbox_id) == 0))
            forget(parent, container);
    }
    return 0;
}

int bundles_each(struct bundles *bundles, int root, const struct bundles_place *place,
                 const char *sandbox_id, bundles_callback *callback, void *userdata)
{
    struct parent *parent = parent_at(bundles, place);
    int r = parent ? list(root, parent, sandbox_id) : 0;

    for (struct container *container = parent ? parent->containers : NULL; r == 0 && container;
         container = container->hh.next)
        r = visit(root, parent, container, sandbox_id, callback, userdata);
    return r;
}

/* ---- one container ----------------------------------------------------------------------- */

static int refresh_owner(int root, struct parent *parent, struct container *container)
{
    cleanup(bundle_done) struct bundle bundle = {0};
    char path[PATH_MAX + 512];
    struct stat st;
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
    r = read_bundle(root, parent, container->id, &bundle);
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
    for (unsigned i = 0; i < BUNDLES_PARENTS; i++) {
        struct parent *parent = &bundles->parent[i];
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
            forget(parent, container);
        return r;
    }
    return 0;
}
