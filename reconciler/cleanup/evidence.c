/* SPDX-License-Identifier: Apache-2.0 */
/* evidence.c - turns a row, the directory itself, the kubelet's paths, processes and state
 * directories into facts for stale_decide(), and into JSON for people.
 *
 * Anything that cannot be read counts against a removal. Nothing is concluded from the row alone:
 * the directory is read again, and if it differs from the row, the row is updated first and nothing
 * is decided this time.
 *
 * The time for which nothing has changed starts over when any of this changes: the directory, the
 * state of its sandboxes, the kubelet's directories.
 */
#include "reconciler/cleanup/cleanup_pass.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "config/config.h"
#include "lib/cleanup.h"
#include "lib/clock.h"
#include "lib/json.h"
#include "lib/path.h"
#include "lib/process.h"
#include "observe/observe.h"
#include "observe/process_scan.h"
#include "reconciler/cleanup/cleaner.h"
#include "reconciler/core/context.h"
#include "reconciler/core/work_queue.h"
#include "store/store.h"

enum { JSON_BYTES = 16 * 1024, JSON_LIVES = 12 * 1024 };

void evidence_done(struct evidence *evidence)
{
    buffer_done(&evidence->json);
}

/* ---- the kind of its path ---------------------------------------------------------------- */

static void take_path(const struct cleanup *cleanup, const struct store_suspect *suspect,
                      struct observed_publish_path *ret_path, enum stale_path *ret_kind)
{
    *ret_path = (struct observed_publish_path){0};
    *ret_kind = STALE_PATH_OTHER;
    if (strcmp(suspect->volume_type, "blk") == 0)
        *ret_kind = STALE_PATH_EMPTY_DIR;
    else if (!suspect->target_path[0])
        *ret_kind = STALE_PATH_UNRESOLVED;
    else if (node_publish_path(cleanup->context, suspect->target_path, ret_path) < 0)
        return;
    if (ret_path->is_empty_dir)
        *ret_kind = STALE_PATH_EMPTY_DIR;
    else if (ret_path->is_publish_path)
        *ret_kind = STALE_PATH_PUBLISH;
}

static enum stale_kubelet judge_kubelet(const struct watch_health *watch_health, unsigned number,
                                        const struct observed_kubelet *kubelet)
{
    if (!kubelet->device)
        return STALE_KUBELET_UNSEEN;
    if (kubelet->elsewhere)
        return STALE_KUBELET_MOVED;
    if (kubelet->pod && (kubelet->leaf || kubelet->volume_data))
        return STALE_KUBELET_HOLDS;
    if (!kubelet->canary[0] || !watch_health->kubelet[number])
        return STALE_KUBELET_UNSEEN;
    if (watch_health->kubelet[number] != kubelet->device)
        return STALE_KUBELET_MOVED;
    return kubelet->pod ? STALE_KUBELET_LEFT : STALE_KUBELET_GONE;
}

static enum stale_kubelet check_kubelet(const struct cleanup *cleanup,
                                        const struct observed_publish_path *path,
                                        struct observed_kubelet *ret_kubelet)
{
    *ret_kubelet = (struct observed_kubelet){.pod = true, .leaf = true, .volume_data = true};
    if (!path->is_publish_path ||
        observe_kubelet(cleanup->context->root,
                        config_list_item(&cleanup->context->config->paths.kubelet, path->kubelet),
                        path->pod_uid, path->pv, ret_kubelet) < 0)
        return STALE_KUBELET_UNSEEN;
    return judge_kubelet(&cleanup->watch_health, path->kubelet, ret_kubelet);
}

/* ---- the cheap part ---------------------------------------------------------------------- */

struct users {
    struct process_scan *process_scan;
    unsigned count, dead;
};

static int count_user(void *userdata, const struct store_user *user)
{
    struct users *users = userdata;

    users->count++;
    users->dead += !user->alive;
    return 0;
}

static int ask_for_user(void *userdata, const struct store_user *user)
{
    struct users *users = userdata;

    return process_scan_ask(users->process_scan, user->sandbox_id);
}

/* A volume in use is a suspect if the kubelet no longer has it, or if it names dead sandboxes. */
static bool is_suspect(const struct cleanup *cleanup, const struct store_suspect *suspect,
                       const struct users *users, const struct users *named)
{
    struct observed_publish_path path;
    struct observed_kubelet kubelet;
    enum stale_kubelet kind;
    enum stale_path lies;

    take_path(cleanup, suspect, &path, &lies);
    if (suspect->stale_reason != STALE_REASON_NONE)
        return true;
    if (lies == STALE_PATH_EMPTY_DIR)
        return false;
    if (suspect->live ? named->dead > 0 : users->count > 0)
        return true;
    kind = check_kubelet(cleanup, &path, &kubelet);
    return kind == STALE_KUBELET_LEFT || kind == STALE_KUBELET_GONE;
}

int evidence_suspects(struct cleanup *cleanup, int64_t entry_id, bool any,
                      struct process_scan *process_scan, bool *ret_suspect)
{
    struct users users = {.process_scan = process_scan}, named = {0};
    struct store_suspect suspect;
    int r = store_get_suspect(cleanup->context->store, entry_id, &suspect);

    *ret_suspect = false;
    if (r != STORE_FOUND)
        return r < 0 ? r : 0;
    r = store_each_user(cleanup->context->store, suspect.volume_id, 0, count_user, &users);
    if (r == 0)
        r = store_each_user(cleanup->context->store, 0, entry_id, count_user, &named);
    if (r < 0)
        return r;
    *ret_suspect = any || is_suspect(cleanup, &suspect, &users, &named);
    return *ret_suspect ? store_each_user(cleanup->context->store, suspect.volume_id, 0,
                                          ask_for_user, &users)
                        : 0;
}

/* ---- one sandbox ------------------------------------------------------------------------- */

struct life {
    bool process, cgroup, state_directory, exit_seen;
    pid_t pid; /* of one of its processes; 0: unknown */
};

static void observe_life(struct cleanup *cleanup, const struct pass_view *view,
                         const struct store_user *user, struct life *ret_life)
{
    cleanup(observed_sandbox_done) struct observed_sandbox observed = {0};
    struct node_lists lists;
    struct observe_sandbox_paths paths;
    struct process process;
    int r;

    node_sandbox_paths(cleanup->context, &lists, &paths);
    /* The pass has read all processes for the process scan, and then again for the index that this
     * looks into (cleanup_pass_prepare()). The process scan counts a process whose arguments cannot
     * be read for every sandbox.
     */
    observe_cache_hold(paths.cache, true);
    r = observe_sandbox(&paths, user->sandbox_id, &observed);
    observe_cache_hold(paths.cache, false);
    *ret_life = (struct life){
        /* A dead sandbox has nothing that would exceed one call, so an unfinished observation means
         * alive. */
        .process = user->alive || observed.alive || r == OBSERVED_UNFINISHED ||
                   process_scan_has_process(view->process_scan, user->sandbox_id) ||
                   /* A zombie counts as well: its arguments are gone, and other threads of it may
                    * still run. */
                   (!user->exit_seen && process_read(user->vmm_pid, &process) == 0 &&
                    process.start_ns == user->vmm_start_ns),
        .cgroup = process_scan_has_cgroup(view->process_scan, user->sandbox_id),
        .state_directory = r != OBSERVED_ABSENT,
        .exit_seen = user->exit_seen,
        .pid = user->alive ? user->vmm_pid
                           : process_scan_get_process(view->process_scan, user->sandbox_id),
    };
}

static const char *yes(bool value)
{
    return value ? "true" : "false";
}

struct walk {
    struct cleanup *cleanup;
    const struct pass_view *view;
    struct evidence *evidence;
};

/* Of several sandboxes the worst counts. */
static int add_user(void *userdata, const struct store_user *user)
{
    struct walk *walk = userdata;
    struct stale_facts *facts = &walk->evidence->facts;
    struct buffer *json = &walk->evidence->json;
    enum stale_sandbox sandbox;
    struct life life;

    observe_life(walk->cleanup, walk->view, user, &life);
    sandbox = life.process                          ? STALE_SANDBOX_ALIVE
              : life.exit_seen                      ? STALE_SANDBOX_SEEN
              : life.cgroup || life.state_directory ? STALE_SANDBOX_TRACES
                                                    : STALE_SANDBOX_CLEARED;
    if (sandbox > facts->sandbox)
        facts->sandbox = sandbox;
    if (json->length > JSON_LIVES) /* more than anyone reads; all of them count nevertheless */
        return 0;
    buffer_append_text(json, json->data[json->length - 1] == '[' ? "{" : ",{");
    json_append_member(json, "id", user->sandbox_id);
    if (life.process && life.pid > 0)
        buffer_append_format(json, ",\"pid\":%d", (int)life.pid);
    return buffer_append_format(json,
                                ",\"process\":%s,\"cgroup\":%s,\"state_directory\":%s,"
                                "\"exit_seen\":%s}",
                                yes(life.process), yes(life.cgroup), yes(life.state_directory),
                                yes(life.exit_seen));
}

/* ---- the directory itself ---------------------------------------------------------------- */

struct names {
    const struct observed_entry *entry;
    unsigned found;
};

static int find_name(void *userdata, const struct store_user *user)
{
    struct names *names = userdata;

    for (unsigned i = 0; i < names->entry->sandboxes; i++)
        names->found += strcmp(names->entry->sandbox[i], user->sandbox_id) == 0;
    return 0;
}

/* For an invalid entry the row keeps the hash of the last valid content, so the hash is not
 * compared. */
static bool is_on_record(const struct store_suspect *suspect, const struct observed_entry *entry)
{
    if ((entry->problem != NULL) != suspect->invalid ||
        entry->sandboxes != suspect->named_sandboxes)
        return false;
    return entry->problem || (entry->directory.inode == suspect->directory_inode &&
                              entry->directory.device == suspect->directory_device &&
                              strcmp(entry->mount_info_sha256, suspect->mount_info_sha256) == 0);
}

static int take_fingerprint(int volumes, struct evidence *evidence)
{
    cleanup(fd_closep) int directory = -1;
    int r = path_open_directory_below(volumes, evidence->suspect.key, &directory);

    if (r == 0)
        r = evidence->file[0]
                ? fingerprint_file(directory, evidence->file, evidence->fingerprint)
                : fingerprint_directory(directory, evidence->fingerprint, &evidence->problem);
    if (r == FINGERPRINT_TAKEN)
        return EVIDENCE_TAKEN;
    if (r != FINGERPRINT_UNFIT && !path_is_no_directory(r))
        return EVIDENCE_NONE;
    evidence->facts.entry = STALE_ENTRY_INVALID;
    memcpy(evidence->fingerprint, "unfit", sizeof("unfit"));
    return EVIDENCE_TAKEN;
}

/* Reads the directory again, and compares it with the row. */
static int take_directory(struct cleanup *cleanup, struct evidence *evidence)
{
    const struct store_suspect *suspect = &evidence->suspect;
    enum reconciler_tree tree = tree_of_layout(suspect->layout);
    cleanup(fd_closep) int volumes = -1;
    cleanup(observed_entry_done) struct observed_entry entry = {0};
    struct names names = {.entry = &entry};
    int r = path_open_directory_in_root(cleanup->context->root,
                                        trees_path(cleanup->context->trees, tree), &volumes);

    if (r == 0)
        r = take_fingerprint(volumes, evidence);
    if (r == EVIDENCE_TAKEN)
        r = observe_entry(volumes, suspect->key, &entry);
    if (r == OBSERVED && is_on_record(suspect, &entry) &&
        store_each_user(cleanup->context->store, 0, suspect->entry_id, find_name, &names) == 0 &&
        names.found == entry.sandboxes) {
        /* A foreign file keeps the directory, but not the file of a dead sandbox beside it. */
        if (suspect->invalid)
            evidence->facts.entry = STALE_ENTRY_INVALID;
        else if (entry.remark && !evidence->file[0])
            evidence->facts.entry = STALE_ENTRY_EXTRA;
        if (entry.problem || (entry.remark && !evidence->problem.text[0]))
            (void)error_set(&evidence->problem, 0, "%s",
                            entry.problem ? entry.problem : entry.remark);
        return EVIDENCE_TAKEN;
    }
    work_queue_add_directory(cleanup->context->queue, tree, suspect->key);
    return EVIDENCE_NONE;
}

static void take_time(const struct cleanup *cleanup, const struct pass_view *view, bool used,
                      struct evidence *evidence)
{
    uint64_t seconds = used ? cleanup->context->config->cleanup.grace_seconds
                            : cleanup->context->config->cleanup.unbound_grace_seconds;

    if (!evidence->since_ns || evidence->since_ns > view->now_ns)
        evidence->since_ns = view->now_ns;
    evidence->settles_ns = stale_settles(&(struct stale_times){
        .since_ns = evidence->since_ns,
        .well_ns = view->well_since_ns,
        .kubelet_ns = process_scan_kubelet_start(view->process_scan),
        .grace_ns = seconds * NSEC_PER_SEC,
    });
    evidence->facts.settled = view->now_ns >= evidence->settles_ns;
}

/* The end of the JSON. */
static int append_time(const struct pass_view *view, const struct evidence *evidence,
                       struct buffer *json)
{
    uint64_t now_ns = view->now_ns, settles_ns = evidence->settles_ns;

    buffer_append_format(json, ",\"stale_seconds\":%" PRIu64,
                         (now_ns - evidence->since_ns) / NSEC_PER_SEC);
    if (settles_ns == UINT64_MAX) /* the wait does not end unless something changes */
        return buffer_append_text(json, ",\"waits_seconds\":null}");
    return buffer_append_format(
        json, ",\"waits_seconds\":%" PRIu64 "}",
        settles_ns > now_ns ? (settles_ns - now_ns + NSEC_PER_SEC - 1) / NSEC_PER_SEC : 0);
}

/* ---- all evidence ------------------------------------------------------------------------ */

/* What is asked of a directory, and not of one file in it: the kubelet, and whether anything has
 * changed since it was judged last. */
static void take_kubelet(const struct cleanup *cleanup, const struct observed_publish_path *path,
                         struct evidence *evidence)
{
    const struct store_suspect *suspect = &evidence->suspect;
    struct observed_kubelet kubelet;
    char state[2 * SHA256_HEX_BYTES];
    int length;

    evidence->facts.kubelet = check_kubelet(cleanup, path, &kubelet);
    evidence->facts.restored =
        suspect->restored[0] && strcmp(suspect->restored, evidence->fingerprint) == 0;
    length = snprintf(state, sizeof(state), "%s %d %d", evidence->fingerprint,
                      (int)evidence->facts.sandbox, (int)evidence->facts.kubelet);
    sha256_hex(state, (size_t)length, evidence->state);
    if (suspect->stale_reason != STALE_REASON_NONE &&
        strcmp(suspect->fingerprint, evidence->state) == 0)
        evidence->since_ns = suspect->since_ns;
    if (!path->is_publish_path)
        return;
    json_append_member(&evidence->json, "pod_uid", path->pod_uid);
    buffer_append_format(&evidence->json, ",\"pod_directory\":%s,\"leaf\":%s,\"vol_data\":%s",
                         yes(kubelet.pod), yes(kubelet.leaf), yes(kubelet.volume_data));
    json_append_member(&evidence->json, "canary", kubelet.canary[0] ? kubelet.canary : NULL);
}

/* user: whose file is in question, in the directory of a volume that is in use; NULL: all of the
 * directory is. EVIDENCE_* or -errno. */
static int take(struct walk *walk, int64_t entry_id, const struct store_user *user)
{
    static const enum stale_mode modes[] = {[CLEANUP_OFF] = STALE_MODE_OFF,
                                            [CLEANUP_REPORT] = STALE_MODE_REPORT,
                                            [CLEANUP_DELETE] = STALE_MODE_DELETE};
    struct cleanup *cleanup = walk->cleanup;
    struct store *store = cleanup->context->store;
    struct evidence *evidence = walk->evidence;
    struct buffer *json = &evidence->json;
    struct observed_publish_path path;
    int r = store_get_suspect(store, entry_id, &evidence->suspect);

    buffer_init(json, JSON_BYTES);
    if (r != STORE_FOUND || (user && !evidence->suspect.live))
        return r < 0 ? r : EVIDENCE_NONE;
    evidence->facts.mode = modes[cleanup->context->config->cleanup.mode];
    if (user)
        memcpy(evidence->file, user->sandbox_id, strlen(user->sandbox_id) + 1);
    r = take_directory(cleanup, evidence);
    if (r != EVIDENCE_TAKEN)
        return r;
    buffer_append_text(json, "{");
    if (user)
        json_append_member(json, "file", user->sandbox_id);
    r = buffer_append_text(json, user ? ",\"sandboxes\":[" : "\"sandboxes\":[");
    if (r == 0)
        r = user ? add_user(walk, user)
                 : store_each_user(store, evidence->suspect.volume_id, 0, add_user, walk);
    if (r < 0)
        return r;
    buffer_append_text(json, "]");
    if (!user && evidence->suspect.live)
        evidence->facts.sandbox = STALE_SANDBOX_ALIVE;
    else if (!walk->view->sees_host)
        evidence->facts.sandbox = STALE_SANDBOX_UNSEEN;
    take_path(cleanup, &evidence->suspect, &path, &evidence->facts.path);
    evidence->facts.daemon = walk->view->daemon[evidence->suspect.layout];
    if (user) {
        evidence->facts.restored = user->restored;
        evidence->since_ns = user->stale_since_ns;
    } else {
        take_kubelet(cleanup, &path, evidence);
    }
    take_time(cleanup, walk->view, evidence->facts.sandbox != STALE_SANDBOX_NEVER, evidence);
    if (evidence->problem.text[0])
        json_append_member(json, "metadata_problem", evidence->problem.text);
    if (cleanup->watch_health.problem[0])
        json_append_member(json, "problem", cleanup->watch_health.problem);
    return append_time(walk->view, evidence, json);
}

int evidence_take(struct cleanup *cleanup, const struct pass_view *view, int64_t entry_id,
                  struct evidence *ret_evidence)
{
    return take(&(struct walk){cleanup, view, ret_evidence}, entry_id, NULL);
}

/* ---- files of dead sandboxes ------------------------------------------------------------- */

struct dead {
    unsigned count;
    struct {
        char sandbox_id[STORE_SANDBOX_ID_BYTES];
        struct store_user user;
    } name[STORE_ENTRY_SANDBOXES];
};

static int note_dead(void *userdata, const struct store_user *user)
{
    struct dead *dead = userdata;

    if (user->alive || dead->count == array_length(dead->name))
        return 0;
    (void)snprintf(dead->name[dead->count].sandbox_id, STORE_SANDBOX_ID_BYTES, "%s",
                   user->sandbox_id);
    dead->name[dead->count].user = *user;
    dead->name[dead->count].user.sandbox_id = dead->name[dead->count].sandbox_id;
    dead->count++;
    return 0;
}

int evidence_each_file(struct cleanup *cleanup, const struct pass_view *view, int64_t entry_id,
                       int (*callback)(void *userdata, struct evidence *evidence), void *userdata)
{
    struct dead dead = {0};
    int r = store_each_user(cleanup->context->store, 0, entry_id, note_dead, &dead);

    for (unsigned i = 0; r == 0 && i < dead.count; i++) {
        cleanup(evidence_done) struct evidence evidence = {0};

        r = take(&(struct walk){cleanup, view, &evidence}, entry_id, &dead.name[i].user);
        if (r == EVIDENCE_TAKEN)
            r = callback(userdata, &evidence);
        else if (r > 0)
            r = 0;
    }
    return r;
}
