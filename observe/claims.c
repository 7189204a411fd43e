/* SPDX-License-Identifier: Apache-2.0 */
/* claims.c - a sandbox claims the mount sources of its containers.
 *
 * A mount source is the volume's path, byte for byte, so it binds volumes whose metadata directory
 * names no sandbox. Every path that could be a volume's is kept, whether or not there is metadata
 * for it now, because the two may be observed in either order.
 *
 * A guest path is found by the last part of the mount's destination. So nothing is concluded from a
 * destination whose last part is shared with other volumes, nor from a name that several devices
 * have: no path is better than another volume's path.
 */
#include "observe/observed_sandbox.h"
#include "observe/process_table.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/directory.h"
#include "observe/bundles.h"
#include "observe/kata.h"

enum { MOUNTS = 1024, CONTAINERS = 128, CONTAINER_CHARS = 10 };

/* ---- what its containers mount ----------------------------------------------------------- */

struct mount {
    char *path;
    char *destination;
    char container[CONTAINER_CHARS + 1];
    bool shares_name; /* another path is mounted at a destination with the same last part */
    int64_t since_ns; /* when the container's bundle was written */
    enum observed_carrier carrier;
    int64_t drive;
    dev_t given; /* of a raw block claim; 0 */
    bool is_confidential, grows_file_systems;
};

struct mounts {
    const struct observe_sandbox_paths *paths;
    const char *sandbox_id;
    struct observed_sandbox *sandbox;
    const char *container_id; /* the current one */
    const struct bundle *bundle;
    unsigned containers, mounts;
    bool is_cut;                                     /* there are more */
    char container[CONTAINERS][CONTAINER_CHARS + 1]; /* the beginnings of their ids */
    struct mount mount[MOUNTS];
};

static int copy_mount(struct mounts *mounts, const char *source, const char *destination)
{
    const struct observed_record *record =
        records_find(mounts->sandbox, mounts->container_id, destination);
    struct mount *mount = &mounts->mount[mounts->mounts++];

    *mount = (struct mount){.path = strdup(source),
                            .destination = strdup(destination),
                            .since_ns = mounts->bundle->written_ns,
                            .carrier = record ? record->carrier : CARRIER_UNKNOWN,
                            .drive = record ? record->drive : -1};
    (void)snprintf(mount->container, sizeof(mount->container), "%s", mounts->container_id);
    return mount->path && mount->destination ? 0 : -ENOMEM;
}

/* ---- raw block claims -------------------------------------------------------------------- */

static bool has_device(const struct bundle *bundle, dev_t device)
{
    for (unsigned i = 0; i < bundle->devices; i++)
        if (bundle->device[i] == device)
            return true;
    return false;
}

/* The container has the claim if its specification has the device that the kubelet published, or
 * the one that it was given under this path before: a privileged one has every device of the node,
 * and of those only these are the pod's. */
static int add_device(void *userdata, const char *path, dev_t device)
{
    struct mounts *mounts = userdata;
    const struct bundle *bundle = mounts->bundle;
    struct mount *mount = &mounts->mount[mounts->mounts];
    int r;

    if (!has_device(bundle, device))
        device = mounts->paths->given_device(mounts->paths->userdata, path);
    if (!device || !has_device(bundle, device))
        return 0;
    mounts->is_cut |= mounts->mounts == MOUNTS;
    if (mounts->mounts == MOUNTS)
        return 0;
    r = copy_mount(mounts, path, path);
    mount->given = device;
    mount->is_confidential = bundle->is_confidential;
    mount->grows_file_systems = bundle->grows_file_systems;
    return r;
}

static int add_container(void *userdata, const char *container_id, struct bundle *bundle)
{
    struct mounts *mounts = userdata;
    struct observed_sandbox *sandbox = mounts->sandbox;

    mounts->container_id = container_id;
    mounts->bundle = bundle;
    mounts->is_cut |= mounts->containers == CONTAINERS || bundle->mounts > MOUNTS - mounts->mounts;
    if (mounts->containers < CONTAINERS)
        (void)snprintf(mounts->container[mounts->containers++], CONTAINER_CHARS + 1, "%s",
                       container_id);
    for (unsigned i = 0; i < bundle->mounts && mounts->mounts < MOUNTS; i++) {
        const struct bundle_mount *mount = &bundle->mount[i];

        if (strlen(mount->source) < PATH_MAX &&
            copy_mount(mounts, mount->source, mount->destination) < 0)
            return -ENOMEM;
    }
    /* Copies: the bundle may be read again in this round. Without memory they count as unknown. */
    if (!sandbox->pod_name && bundle->pod_name)
        sandbox->pod_name = strdup(bundle->pod_name);
    if (!sandbox->pod_namespace && bundle->pod_namespace)
        sandbox->pod_namespace = strdup(bundle->pod_namespace);
    if (!bundle->devices || !bundle->pod_uid)
        return 0;
    return observe_each_block_claim(mounts->paths->root, mounts->paths->kubelet,
                                    mounts->paths->kubelets, bundle->pod_uid, add_device, mounts);
}

static void mounts_freep(struct mounts **mounts)
{
    for (unsigned i = 0; *mounts && i < (*mounts)->mounts; i++) {
        free((*mounts)->mount[i].path);
        free((*mounts)->mount[i].destination);
    }
    free(*mounts);
}

/* ---- passthrough ------------------------------------------------------------------------- */

/* The guest path of a direct volume consists of the device's id, a random part and the last part of
 * the container's destination (src/runtime-rs, resource/src/volume/utils.rs):
 *
 *     /run/kata-containers/shared/containers/passthrough/DEVICE10-RANDOM8-BASENAME
 *
 * It is not recorded anywhere, but the shim makes a directory of that name on the host:
 *
 *     /run/kata-containers/shared/sandboxes/SANDBOX/rw/passthrough/
 *
 * The same directory has files shared with the guest, whose names have the same form, with the
 * beginning of a container's id as the first part.
 *
 * Only names and times are read, never what is in a directory, because the guest may write there.
 */

#define HOST_SANDBOXES "/run/kata-containers/shared/sandboxes"
#define GUEST_MOUNTS   "/run/kata-containers/shared/containers/passthrough"

enum { NAMES = 2048, DEVICE_CHARS = 10, RANDOM_CHARS = 8, PREFIX_CHARS = 20 };

static bool is_hex(const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!isdigit((unsigned char)text[i]) && (text[i] < 'a' || text[i] > 'f'))
            return false;
    return true;
}

static bool has_form(const char *name)
{
    return strlen(name) > PREFIX_CHARS && name[DEVICE_CHARS] == '-' &&
           name[PREFIX_CHARS - 1] == '-' && is_hex(name, DEVICE_CHARS) &&
           is_hex(name + DEVICE_CHARS + 1, RANDOM_CHARS);
}

/* By mount name first, so that the names for one mount are adjacent. */
static int compare_passthrough(const void *a, const void *b)
{
    const char *left = *(char *const *)a, *right = *(char *const *)b;
    int order = strcmp(left + PREFIX_CHARS, right + PREFIX_CHARS);

    return order ? order : strcmp(left, right);
}

/* The index of the first name whose mount ends in `basename`, or the place where it would be. */
static unsigned first_of(const struct directory_names *names, const char *basename)
{
    unsigned low = 0, high = names->count;

    while (low < high) {
        unsigned middle = low + (high - low) / 2;

        if (strcmp(names->name[middle] + PREFIX_CHARS, basename) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_of(const struct directory_names *names, unsigned i, const char *basename)
{
    return i < names->count && strcmp(names->name[i] + PREFIX_CHARS, basename) == 0;
}

/* The names of that form. If the directory does not exist: no names. 0 or -errno. */
static int read_passthrough(int root, const char *sandbox_id, struct directory_names *ret_names)
{
    cleanup(dir_closep) DIR *directory = NULL;
    char path[PATH_MAX];
    int r;

    (void)snprintf(path, sizeof(path), HOST_SANDBOXES "/%s/rw/passthrough", sandbox_id);
    r = directory_list_in_root(root, path, &directory);
    if (r == 0)
        r = directory_read_names(directory, NAMES, has_form, ret_names);
    if (r == DIRECTORY_TOO_MANY)
        directory_names_done(ret_names); /* an incomplete list cannot tell whose a name is */
    if (r >= 0 && ret_names->count)
        qsort(ret_names->name, ret_names->count, sizeof(*ret_names->name), compare_passthrough);
    return r < 0 && !kata_is_absent(r) ? r : 0;
}

static bool is_container(const struct mounts *mounts, const char *part)
{
    for (unsigned i = 0; i < mounts->containers; i++)
        if (strcmp(mounts->container[i], part) == 0)
            return true;
    return false;
}

/* Whether a name of that form is that of a volume whose mount destination ends in BASENAME. */
static bool is_candidate(const struct mounts *mounts, const char *name, const char *basename)
{
    char part[DEVICE_CHARS + 1] = "";

    memcpy(part, name, DEVICE_CHARS);
    return strcmp(name + PREFIX_CHARS, basename) == 0 && !is_container(mounts, part);
}

/* -1: it is gone. */
static int64_t made_ns(int root, const char *sandbox_id, const char *name)
{
    char path[PATH_MAX];
    struct stat st;

    (void)snprintf(path, sizeof(path), HOST_SANDBOXES "/%s/rw/passthrough/%s", sandbox_id, name);
    return path_stat_in_root(root, path, &st) == 0
               ? st.st_mtim.tv_sec * (int64_t)NSEC_PER_SEC + st.st_mtim.tv_nsec
               : -1;
}

/* The oldest name that ends in BASENAME and was made at since_ns or later: the directories of
 * containers that have ended remain. NULL if there is none, or if such names belong to several
 * devices. */
static const char *find_passthrough(const struct mounts *mounts,
                                    const struct directory_names *names, const char *basename,
                                    int64_t since_ns)
{
    const char *found = NULL;
    int64_t found_ns = 0;

    for (unsigned i = first_of(names, basename); is_of(names, i, basename); i++) {
        const char *name = names->name[i];
        int64_t name_ns;

        if (!is_candidate(mounts, name, basename))
            continue;
        name_ns = made_ns(mounts->paths->root, mounts->sandbox_id, name);
        if (name_ns < since_ns)
            continue;
        if (found && strncmp(found, name, DEVICE_CHARS) != 0)
            return NULL;
        if (!found || name_ns < found_ns) {
            found = name;
            found_ns = name_ns;
        }
    }
    return found;
}

/* Whether the container with this beginning of its id has a file or directory of the node in place
 * of the mount whose destination ends in BASENAME. */
static bool is_shared(const struct directory_names *names, const char *container,
                      const char *basename)
{
    for (unsigned i = first_of(names, basename); is_of(names, i, basename); i++)
        if (strncmp(names->name[i], container, DEVICE_CHARS) == 0)
            return true;
    return false;
}

static int make_guest_path(const char *name, char **ret_path)
{
    return asprintf(ret_path, GUEST_MOUNTS "/%s", name) < 0 ? -ENOMEM : 0;
}

/* ---- guest paths ------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    const struct mount *const *left = a, *const *right = b;
    int order = strcmp(basename((*left)->destination), basename((*right)->destination));

    return order ? order : strcmp((*left)->path, (*right)->path);
}

static bool is_named_alike(const struct mount *a, const struct mount *b)
{
    return strcmp(basename(a->destination), basename(b->destination)) == 0;
}

/* Sorted by name, then by path: in a group with one name, the first and the last mount show whether
 * there are several paths. */
static void mark_shared_names(struct mounts *mounts, struct mount **by_name)
{
    for (unsigned i = 0; i < mounts->mounts; i++)
        by_name[i] = &mounts->mount[i];
    qsort(by_name, mounts->mounts, sizeof(by_name[0]), compare_names);
    for (unsigned first = 0, next; first < mounts->mounts; first = next) {
        bool shared;

        for (next = first + 1; next < mounts->mounts; next++)
            if (!is_named_alike(by_name[first], by_name[next]))
                break;
        shared = strcmp(by_name[first]->path, by_name[next - 1]->path) != 0;
        for (unsigned i = first; i < next; i++)
            by_name[i]->shares_name = shared;
    }
}

/* The mounts of one path are adjacent, and sorted by name among themselves, that of the oldest
 * container first. */
static const char *find_name(struct mounts *mounts, const struct directory_names *passthrough,
                             unsigned first, unsigned next)
{
    for (unsigned i = first; i < next; i++) {
        const struct mount *mount = &mounts->mount[i];
        const char *name;

        if (mount->shares_name || (i > first && is_named_alike(mount, mount - 1)))
            continue;
        name = find_passthrough(mounts, passthrough, basename(mount->destination), mount->since_ns);
        if (name)
            return name;
    }
    return NULL;
}

/* ---- claims ------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
    const struct mount *left = a, *right = b;
    int order = strcmp(left->path, right->path);

    if (!order)
        order = strcmp(basename(left->destination), basename(right->destination));
    return order ? order : (left->since_ns > right->since_ns) - (left->since_ns < right->since_ns);
}

/* Takes the strongest carrier of all containers: one may have ended while another one is
 * starting. */
static void set_carrier(const struct mounts *mounts, const struct directory_names *passthrough,
                        unsigned first, unsigned next, struct observed_claim *claim)
{
    for (unsigned i = first; i < next; i++) {
        const struct mount *mount = &mounts->mount[i];
        enum observed_carrier carrier = mount->carrier;

        if (carrier == CARRIER_UNKNOWN && claim->carrier < CARRIER_DIRECTORY && !mount->given &&
            !mount->shares_name &&
            is_shared(passthrough, mount->container, basename(mount->destination)))
            carrier = CARRIER_DIRECTORY;
        if (carrier <= claim->carrier)
            continue;
        claim->carrier = carrier;
        claim->drive = mount->drive;
    }
}

/* Adds the claim for the mounts of one path. */
static int add_claim(struct mounts *mounts, const struct directory_names *passthrough,
                     unsigned first, unsigned next)
{
    struct observed_sandbox *sandbox = mounts->sandbox;
    struct observed_claim *claim = &sandbox->claim[sandbox->claims++];
    const struct mount *mount = &mounts->mount[first];
    const char *name = mount->given ? NULL : find_name(mounts, passthrough, first, next);
    int r = kata_copy(mount->path, &claim->path);

    if (r < 0)
        return r;
    claim->source = "bundle";
    claim->given = mount->given;
    claim->is_confidential = mount->is_confidential;
    claim->grows_file_systems = mount->grows_file_systems;
    claim->carrier = CARRIER_ENDED;
    claim->drive = -1;
    set_carrier(mounts, passthrough, first, next, claim);
    if (!name)
        return 0;
    if (claim->carrier < CARRIER_DEVICE)
        claim->carrier = CARRIER_DEVICE;
    return make_guest_path(name, &claim->guest_path);
}

/* Adds one claim per path, sorted by path. */
static int add_claims(struct mounts *mounts, const struct directory_names *passthrough)
{
    struct observed_sandbox *sandbox = mounts->sandbox;
    cleanup(freep) struct mount **by_name = calloc(mounts->mounts + 1, sizeof(struct mount *));
    int r = 0;

    if (!mounts->mounts)
        return 0;
    sandbox->claim = calloc(mounts->mounts, sizeof(*sandbox->claim));
    if (!sandbox->claim || !by_name)
        return -ENOMEM;
    qsort(mounts->mount, mounts->mounts, sizeof(*mounts->mount), compare);
    mark_shared_names(mounts, by_name);
    for (unsigned first = 0, next; r == 0 && first < mounts->mounts; first = next) {
        for (next = first + 1; next < mounts->mounts; next++)
            if (strcmp(mounts->mount[first].path, mounts->mount[next].path) != 0)
                break;
        r = add_claim(mounts, passthrough, first, next);
    }
    return r;
}

/* With the sandbox API a sandbox has no bundle before its first container. */
static int note_unseen(const struct mounts *mounts, const struct bundles_place *place,
                       const struct error *refused, struct observed_sandbox *sandbox)
{
    struct error error;

    if (refused->text[0])
        return kata_hide_volumes(sandbox, refused->code == FILE_CUT, refused->text);
    if (mounts->is_cut)
        return kata_hide_volumes(sandbox, false,
                                 "it has more containers or mounts than crustd reads");
    if (mounts->containers || place->is_apart)
        return 0;
    (void)error_set(&error, 0, "%s/config.json: no such file", place->own);
    return kata_hide_volumes(sandbox, true, error.text);
}

int claims_read(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                const struct bundles_place *place, bool passthrough,
                struct observed_sandbox *sandbox)
{
    cleanup(mounts_freep) struct mounts *mounts = calloc(1, sizeof(*mounts));
    cleanup(directory_names_done) struct directory_names names = {0};
    struct error refused;
    int r;

    if (!mounts)
        return -ENOMEM;
    mounts->paths = paths;
    mounts->sandbox_id = sandbox_id;
    mounts->sandbox = sandbox;
    r = kata_copy(place->parent, &sandbox->bundles);
    if (r == 0)
        r = bundles_each(paths->cache->bundles, paths->root, place, sandbox_id, add_container,
                         mounts, &refused);
    if (r == BUNDLES_UNFINISHED)
        return OBSERVED_UNFINISHED;
    mounts->is_cut |= r == BUNDLES_CUT;
    if (r == 0 || r == BUNDLES_CUT)
        r = note_unseen(mounts, place, &refused, sandbox);
    if (r == 0 && passthrough)
        r = read_passthrough(paths->root, sandbox_id, &names);
    return r == 0 ? add_claims(mounts, &names) : r;
}

/* ---- places that a path may have in the guest -------------------------------------------- */

static int offer_names(struct mounts *mounts, const struct directory_names *names,
                       const struct mount *mount, claims_place *callback, void *userdata)
{
    int r = 0;

    for (unsigned i = 0; r == 0 && i < names->count; i++) {
        cleanup(freep) char *guest_path = NULL;

        if (!is_candidate(mounts, names->name[i], basename(mount->destination)))
            continue;
        r = make_guest_path(names->name[i], &guest_path);
        if (r == 0)
            r = callback(userdata, guest_path);
    }
    return r;
}

int claims_each_place(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                      pid_t vmm_pid, const char *path, claims_place *callback, void *userdata)
{
    cleanup(mounts_freep) struct mounts *mounts = calloc(1, sizeof(*mounts));
    cleanup(directory_names_done) struct directory_names names = {0};
    cleanup(observed_sandbox_done) struct observed_sandbox sandbox = {0};
    struct bundles_place place;
    struct error refused;
    int r;

    if (!mounts)
        return -ENOMEM;
    mounts->paths = paths;
    mounts->sandbox = &sandbox;
    r = bundle_find(paths, sandbox_id, vmm_pid, &sandbox, &place);
    if (r == OBSERVED_UNFINISHED)
        return -EBUSY;
    if (r < 0 || !place.own[0])
        return r;
    r = bundles_each(paths->cache->bundles, paths->root, &place, sandbox_id, add_container, mounts,
                     &refused);
    if (r == BUNDLES_UNFINISHED)
        return -EBUSY;
    if (r == BUNDLES_CUT || (r == 0 && mounts->is_cut))
        return -EOVERFLOW; /* the caller needs all of them */
    if (r == 0 && refused.text[0])
        return -EBADMSG;
    if (r == 0)
        r = read_passthrough(paths->root, sandbox_id, &names);
    for (unsigned i = 0; r == 0 && i < mounts->mounts; i++)
        if (strcmp(mounts->mount[i].path, path) == 0)
            r = offer_names(mounts, &names, &mounts->mount[i], callback, userdata);
    return r;
}

struct count {
    const char *sandbox_id;
    unsigned others;
};

static int count_container(void *userdata, const char *container_id, struct bundle *bundle)
{
    struct count *count = userdata;

    (void)bundle;
    count->others += strcmp(container_id, count->sandbox_id) != 0;
    return 0;
}

int claims_count_containers(const struct observe_sandbox_paths *paths, const char *sandbox_id,
                            unsigned *ret_count)
{
    cleanup(observed_sandbox_done) struct observed_sandbox sandbox = {0};
    struct count count = {.sandbox_id = sandbox_id};
    struct bundles_place place;
    struct error refused;
    int r;

    unknown_sandboxes_ask(paths->cache, sandbox_id);
    r = bundle_find(paths, sandbox_id, 0, &sandbox, &place);
    if (r != 0)
        return r;
    if (!place.own[0])
        return unknown_sandboxes_find(paths->cache, sandbox_id);
    r = bundles_each(paths->cache->bundles, paths->root, &place, sandbox_id, count_container,
                     &count, &refused);
    if (r < 0)
        return r;
    if (r == BUNDLES_UNFINISHED)
        return OBSERVED_UNFINISHED;
    *ret_count = count.others + (refused.text[0] != '\0');
    return OBSERVED;
}

static int compare_sources(const void *a, const void *b)
{
    const struct observed_record *const *left = a, *const *right = b;

    return strcmp((*left)->source, (*right)->source);
}

int claims_from_records(struct observed_sandbox *sandbox)
{
    cleanup(freep) const struct observed_record **sorted =
        calloc(sandbox->records + 1, sizeof(struct observed_record *));

    sandbox->claim = calloc(sandbox->records + 1, sizeof(*sandbox->claim));
    if (!sandbox->claim || !sorted)
        return -ENOMEM;
    for (unsigned i = 0; i < sandbox->records; i++)
        sorted[i] = &sandbox->record[i];
    qsort(sorted, sandbox->records, sizeof(sorted[0]), compare_sources);
    for (unsigned i = 0; i < sandbox->records; i++) {
        struct observed_claim *claim = &sandbox->claim[sandbox->claims];
        const char *source = sorted[i]->source;

        if (sorted[i]->carrier != CARRIER_DIRECTORY || source[0] != '/' ||
            strlen(source) >= PATH_MAX || (sandbox->claims && strcmp(claim[-1].path, source) == 0))
            continue;
        *claim = (struct observed_claim){
            .path = strdup(source), .source = "persist", .carrier = CARRIER_DIRECTORY, .drive = -1};
        if (!claim->path)
            return -ENOMEM;
        sandbox->claims++;
    }
    return 0;
}
