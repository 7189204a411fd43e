/* SPDX-License-Identifier: Apache-2.0 */
/* bundles.c - the bundle directories of each engine, and what was learned about their containers.
 *
 *   containerd, k3s, rke2   …/io.containerd.runtime.v2.task/k8s.io/ID/config.json
 *   CRI-O                   …/overlay-containers/ID/userdata/config.json
 *
 * With containerd's sandbox API (sandboxer = "shim") the sandbox itself is no container. Its shim
 * works in …/io.containerd.sandbox.controller.v1.shim/k8s.io/SANDBOX, where no config.json is.
 *
 * Whose container it is whose config.json cannot be read, its file `sandbox` says (containerd 1.7
 * and 2.0), or its file `address`: Kata's shim writes its socket there for each container, so it is
 * the same as in the sandbox's own directory. Where neither has one, it may be the sandbox's.
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
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/collections.h"
#include "lib/directory.h"
#include "lib/json.h"
#include "lib/path.h"
#include "observe/observe.h"

/* YOUNG: how often a container that has just been found is observed again, because its bundle
 * appears some milliseconds before what the runtime makes of it. */
enum { CONTAINERS = 65536, YOUNG = 3, SHIM_BYTES = 256 };

/* The bounds of one call, and of what is kept between calls. */
enum { FILES = 64, BYTES = 2 * 1024 * 1024, KEPT_BYTES = 8 * 1024 * 1024 };
static const uint64_t READING_NS = 8 * NSEC_PER_MSEC;

/* Why a bundle could not be read, and whose it is all the same. */
struct refusal {
    struct error why; /* an enum file_text; no text: it could be read, or is not there yet */
    char sandbox_id[OBSERVE_SANDBOX_ID_BYTES];
    char shim[SHIM_BYTES]; /* the address of its shim */
};

struct container {
    UT_hash_handle hh;
    bool is_known; /* its bundle was read, or its sandbox is known without it */
    bool is_listed;
    bool is_left_out; /* of the call in progress, because too much is kept already */
    unsigned young;
    uint64_t round;                            /* the round in which it was last read */
    struct bundle *kept;                       /* read for a call that is not complete yet; NULL */
    struct refusal *refusal;                   /* NULL: it could be read, or was not tried */
    char sandbox_id[OBSERVE_SANDBOX_ID_BYTES]; /* "" none */
    char id[];
};

struct parent {
    struct bundles_place place;
    struct container *containers;
    bool is_cut; /* there are more containers than are remembered */
    uint64_t round;
};

struct bundles {
    const char *grow_annotation;
    struct parent *parent[BUNDLES_PARENTS]; /* NULL after the last */
    size_t kept_bytes;
};

/* The state of one call. */
struct reading {
    int root;
    struct bundles *bundles;
    struct parent *parent;
    const char *sandbox_id;
    char shim[SHIM_BYTES]; /* its address */
    unsigned files;
    size_t bytes;
    uint64_t until_ns;
};

int bundles_new(const char *grow_annotation, struct bundles **ret_bundles)
{
    struct bundles *bundles = calloc(1, sizeof(*bundles));

    if (!bundles)
        return -ENOMEM;
    bundles->grow_annotation = grow_annotation;
    *ret_bundles = bundles;
    return 0;
}

static void drop_kept(struct bundles *bundles, struct container *container)
{
    if (!container->kept)
        return;
    bundles->kept_bytes -= container->kept->bytes;
    bundle_done(container->kept);
    free(container->kept);
    container->kept = NULL;
}

static void forget(struct bundles *bundles, struct parent *parent, struct container *container)
{
    drop_kept(bundles, container);
    HASH_DEL(parent->containers, container);
    free(container->refusal);
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

bool bundles_swap(const char *path, const char *from, const char *to,
                  char ret_path[static PATH_MAX])
{
    const char *name = strstr(path, from);

    return name && name > path && name[-1] == '/' && strchr(name, '/') &&
           snprintf(ret_path, PATH_MAX, "%.*s%s%s", (int)(name - path), path, to,
                    strchr(name, '/')) < PATH_MAX;
}

int bundles_place_of(const char *bundle, const char *id, struct bundles_place *ret_place)
{
    char tasks[PATH_MAX];
    size_t length = strlen(id);

    for (const char *at = strstr(bundle, id); at; at = strstr(at + 1, id)) {
        size_t before = (size_t)(at - bundle);

        if (before < 2 || at[-1] != '/' || (at[length] && at[length] != '/'))
            continue;
        if (strlen(bundle) >= PATH_MAX)
            return -ENAMETOOLONG;
        memcpy(ret_place->own, bundle, strlen(bundle) + 1);
        memcpy(ret_place->parent, bundle, before - 1);
        ret_place->parent[before - 1] = '\0';
        memcpy(ret_place->rest, at + length, strlen(at + length) + 1);
        ret_place->is_apart =
            bundles_swap(ret_place->parent, BUNDLES_CONTROLLERS, BUNDLES_TASKS, tasks);
        if (ret_place->is_apart)
            memcpy(ret_place->parent, tasks, strlen(tasks) + 1);
        return 0;
    }
    return -ENOENT;
}

/* ---- what is remembered ------------------------------------------------------------------ */

/* 0, BUNDLES_CUT if all slots are taken by other directories of bundles, or -ENOMEM. */
static int parent_at(struct bundles *bundles, const struct bundles_place *place,
                     struct parent **ret_parent)
{
    for (unsigned i = 0; i < BUNDLES_PARENTS; i++) {
        struct parent **parent = &bundles->parent[i];

        if (!*parent) {
            *parent = calloc(1, sizeof(**parent));
            if (!*parent)
                return -ENOMEM;
            (*parent)->place = *place;
            (*parent)->round = 1;
        }
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

/* One line of text; "" if there is none. */
static void read_line(int directory, const char *name, char *ret_text, size_t size)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(size - 1);

    ret_text[0] = '\0';
    if (path_read_in_private(directory, name, &text, NULL) == PATH_OK)
        (void)snprintf(ret_text, size, "%.*s", (int)strcspn(buffer_text(&text), "\n"),
                       buffer_text(&text));
}

/* An enum file_text or -ENOMEM, with an error for FILE_WRONG and for a FILE_CUT that is there. */
static int read_config(int directory, const char *grow_annotation, struct bundle *ret_bundle,
                       size_t *ret_bytes, struct error *error)
{
    cleanup(buffer_done) struct buffer text = BUFFER_INIT(JSON_LIMITS_BUNDLE.bytes);
    int r = path_read_in_private(directory, "config.json", &text, error);

    *ret_bytes = text.length;
    if (result_is_shortage(r))
        return r;
    if (r == PATH_OK) {
        r = bundle_parse(buffer_text(&text), text.length, grow_annotation, ret_bundle, error);
        if (r != FILE_READ)
            (void)error_prefix(error, "config.json: ");
        return r;
    }
    if (r == PATH_ABSENT)
        error->text[0] = '\0';
    return r == PATH_UNSAFE || r == PATH_TOO_BIG ? FILE_WRONG : FILE_CUT;
}

/* Only root can have made the bundle or anything in it, because its parent is root's (claims.c). An
 * enum file_text or -ENOMEM. A file that does not exist or cannot be opened counts as FILE_CUT. */
static int read_bundle(const struct bundles *bundles, int root, const struct parent *parent,
                       const char *id, struct bundle *ret_bundle, size_t *ret_bytes,
                       struct refusal *ret_refusal)
{
    cleanup(fd_closep) int parent_directory = -1, directory = -1;
    char path[PATH_MAX + OBSERVE_SANDBOX_ID_BYTES];
    struct stat st;
    int r = path_open_directory_in_root(root, parent->place.parent, &parent_directory);

    (void)snprintf(path, sizeof(path), "%s%s", id, parent->place.rest);
    if (r == 0)
        r = path_open_directory_below(parent_directory, path, &directory);
    *ret_bytes = 0;
    *ret_refusal = (struct refusal){0};
    if (r < 0 && !path_is_missing(r))
        (void)error_set_errno(&ret_refusal->why, r, "config.json: cannot be reached");
    if (r < 0)
        return result_is_shortage(r) ? r : FILE_CUT;
    r = read_config(directory, bundles->grow_annotation, ret_bundle, ret_bytes, &ret_refusal->why);
    if (r == FILE_READ && fstatat(directory, "config.json", &st, AT_SYMLINK_NOFOLLOW) == 0)
        ret_bundle->written_ns = st.st_mtim.tv_sec * (int64_t)NSEC_PER_SEC + st.st_mtim.tv_nsec;
    if (r == FILE_READ && ret_bundle->sandbox_id)
        return FILE_READ;
    read_line(directory, "sandbox", ret_refusal->sandbox_id, sizeof(ret_refusal->sandbox_id));
    if (r == FILE_READ) {
        /* A container whose bundle no pod engine has annotated is a sandbox by itself, unless
         * containerd has written its sandbox beside it. */
        ret_bundle->sandbox_id = strdup(ret_refusal->sandbox_id[0] ? ret_refusal->sandbox_id : id);
        return ret_bundle->sandbox_id ? FILE_READ : -ENOMEM;
    }
    ret_refusal->why.code = r;
    read_line(directory, "address", ret_refusal->shim, sizeof(ret_refusal->shim));
    return r;
}

/* One that cannot be read and whose sandbox is not known either is tried again at each call. */
static int note_owner(struct container *container, int outcome, const struct bundle *bundle,
                      const struct refusal *refusal)
{
    const char *id = outcome == FILE_READ ? bundle->sandbox_id : refusal->sandbox_id;

    free(container->refusal);
    container->refusal = NULL;
    if (outcome != FILE_READ && refusal->why.text[0]) {
        container->refusal = malloc(sizeof(*refusal));
        if (!container->refusal)
            return -ENOMEM;
        *container->refusal = *refusal;
    }
    if (container->is_known)
        return 0;
    container->is_known = outcome == FILE_READ || (outcome != FILE_CUT && (*id || *refusal->shim));
    if (container->is_known)
        (void)snprintf(container->sandbox_id, sizeof(container->sandbox_id), "%s",
                       observe_is_sandbox_id(id) ? id : "");
    return 0;
}

static bool is_of(const struct container *container, const struct reading *reading)
{
    if (container->refusal && !container->sandbox_id[0])
        return strcmp(container->refusal->shim, reading->shim) == 0;
    return container->is_known && strcmp(container->sandbox_id, reading->sandbox_id) == 0;
}

static int keep(const struct reading *reading, struct container *container, struct bundle *bundle)
{
    struct bundles *bundles = reading->bundles;
    size_t bytes = bundle->bytes;

    /* Bundles of other sandboxes are dropped, and read again when their sandbox is asked for. */
    if (bundles->kept_bytes + bytes > KEPT_BYTES)
        for (struct container *other = reading->parent->containers; other; other = other->hh.next)
            if (other->kept && !is_of(other, reading)) {
                drop_kept(bundles, other);
                other->round = 0;
            }
    container->is_left_out = bundles->kept_bytes + bytes > KEPT_BYTES;
    if (container->is_left_out)
        return 0; /* more than a pod has */
    container->kept = calloc(1, sizeof(*container->kept));
    if (!container->kept)
        return -ENOMEM;
    *container->kept = *bundle;
    *bundle = (struct bundle){0};
    bundles->kept_bytes += bytes;
    return 0;
}

static int visit(struct reading *reading, struct container *container)
{
    cleanup(bundle_done) struct bundle bundle = {0};
    struct refusal refusal;
    size_t bytes;
    int r;

    container->round = reading->parent->round;
    r = read_bundle(reading->bundles, reading->root, reading->parent, container->id, &bundle,
                    &bytes, &refusal);
    reading->files++;
    reading->bytes += bytes;
    if (r < 0 || note_owner(container, r, &bundle, &refusal) < 0)
        return r < 0 ? r : -ENOMEM;
    if (r == FILE_READ && is_of(container, reading))
        return keep(reading, container, &bundle);
    if (container->is_known && !is_of(container, reading))
        container->round = 0; /* so that a call for its own sandbox reads it */
    return 0;
}

/* Whether it still has to be read for this call. */
static bool is_awaited(const struct reading *reading, const struct container *container)
{
    if (container->round == reading->parent->round)
        return false;
    return !container->is_known || (is_of(container, reading) && !container->kept);
}

/* An enum progress_outcome or -errno. */
static int read_awaited(struct reading *reading)
{
    struct container *container = reading->parent->containers;
    int r = 0;

    for (; r == 0 && container; container = container->hh.next) {
        if (!is_awaited(reading, container))
            continue;
        if (reading->files >= FILES || reading->bytes >= BYTES ||
            clock_processor() >= reading->until_ns)
            return PROGRESS_MORE;
        r = visit(reading, container);
    }
    return r;
}

/* Marks the containers that exist and forgets those that do not. A container of another sandbox is
 * remembered, so that observe_bundle_owner() can still name its sandbox. */
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
        if (!container->is_listed && (!container->sandbox_id[0] || is_of(container, reading)))
            forget(reading->bundles, parent, container);
    }
    return 0;
}

/* Everything is read: passes it to the callback, and drops it even if the callback stops early.
 * An enum bundles_outcome or -errno. */
static int hand_over(const struct reading *reading, bundles_callback *callback, void *userdata,
                     struct error *ret_refused)
{
    const struct bundles_place *place = &reading->parent->place;
    bool is_cut = reading->parent->is_cut;
    int r = 0;

    reading->parent->round++;
    for (struct container *container = reading->parent->containers; container;
         container = container->hh.next) {
        if (!is_of(container, reading))
            continue;
        if (container->refusal && ret_refused && !ret_refused->text[0])
            (void)error_set(ret_refused, container->refusal->why.code, "%s/%s%s/%s", place->parent,
                            container->id, place->rest, container->refusal->why.text);
        is_cut |= container->is_left_out;
        container->is_left_out = false;
        if (!container->kept)
            continue;
        if (r == 0)
            r = callback(userdata, container->id, container->kept);
        drop_kept(reading->bundles, container);
    }
    return r == 0 && is_cut ? BUNDLES_CUT : r;
}

int bundles_each(struct bundles *bundles, int root, const struct bundles_place *place,
                 const char *sandbox_id, bundles_callback *callback, void *userdata,
                 struct error *ret_refused)
{
    cleanup(fd_closep) int own = -1;
    struct reading reading = {
        .root = root,
        .bundles = bundles,
        .sandbox_id = sandbox_id,
        .until_ns = clock_processor() + READING_NS,
    };
    int r = parent_at(bundles, place, &reading.parent);

    if (ret_refused)
        ret_refused->text[0] = '\0';
    if (r != 0)
        return r;
    if (path_open_directory_in_root(root, place->own, &own) == 0)
        read_line(own, "address", reading.shim, sizeof(reading.shim));
    r = list(&reading);
    if (r == 0)
        r = read_awaited(&reading);
    if (r == PROGRESS_MORE)
        return BUNDLES_UNFINISHED;
    return r == 0 ? hand_over(&reading, callback, userdata, ret_refused) : r;
}

/* ---- one container ----------------------------------------------------------------------- */

static int refresh_owner(const struct bundles *bundles, int root, struct parent *parent,
                         struct container *container)
{
    cleanup(bundle_done) struct bundle bundle = {0};
    char path[PATH_MAX + 512];
    struct refusal refusal;
    struct stat st;
    size_t bytes;
    int r;

    (void)snprintf(path, sizeof(path), "%s/%s", parent->place.parent, container->id);
    r = path_stat_in_root(root, path, &st);
    if (r == PATH_MISSING)
        return OBSERVED_CONTAINER_GONE;
    if (r < 0)
        return r;
    if (container->is_known)
        return container->young && container->young-- ? OBSERVED_OWNER_MAY_CHANGE
                                                      : OBSERVED_OWNER_KNOWN;
    r = read_bundle(bundles, root, parent, container->id, &bundle, &bytes, &refusal);
    if (r < 0 || note_owner(container, r, &bundle, &refusal) < 0)
        return r < 0 ? r : -ENOMEM;
    container->young = container->sandbox_id[0] ? YOUNG : 0;
    return container->is_known && !container->young ? OBSERVED_OWNER_KNOWN
                                                    : OBSERVED_OWNER_MAY_CHANGE;
}

int observe_bundle_owner(const struct observe_sandbox_paths *paths, const char *parent_path,
                         const char *container_id,
                         char ret_sandbox_id[static OBSERVE_SANDBOX_ID_BYTES])
{
    struct bundles *bundles = paths->cache->bundles;

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
        r = refresh_owner(bundles, paths->root, parent, container);
        if (r >= 0)
            memcpy(ret_sandbox_id, container->sandbox_id, sizeof(container->sandbox_id));
        if (r == OBSERVED_CONTAINER_GONE)
            forget(bundles, parent, container);
        return r;
    }
    return 0;
}
