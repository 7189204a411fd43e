/* volumes.c - one volume whole, its state, and which volumes something touches.
 *
 * store_get_volume() stands between a uevent and the command that answers it. It is a few small
 * joins, each a search by an index from the volume outwards, so its cost depends on what the volume
 * has and never on how many volumes there are; a test reads the query plans. Columns are taken in
 * the order in which they are selected: a query and the function that reads it are to be changed
 * together.
 */
#include <stdio.h>
#include <string.h>

#include "store/internal.h"
#include "store/schema.h"

/* ---- one volume, whole --------------------------------------------------------------------- */

static const char select_volume[] =
    "SELECT v.status, (SELECT max(o.policy) FROM entries o WHERE o.volume_id = v.volume_id"
    "  AND o.gone = 0), v.target_path, e.key, e.volume_type, e.device,"
    " (SELECT o.device FROM entries o WHERE o.volume_id = v.volume_id AND o.gone = 0"
    "  AND o.device <> e.device LIMIT 1), v.state, v.reason, v.attempts, v.next_attempt_ns,"
    " d.device_id, d.kind, d.name, d.major, d.minor, d.diskseq, d.file_device, d.inode,"
    " d.size_bytes, d.size_since_ns, d.size_bytes <> d.first_size, d.announced,"
    " (SELECT 1 + max(l.state) FROM layers l WHERE l.device_id = v.device_id),"
    " m.mapping_id, m.device_id, b.major, b.minor, m.sandbox_ref, m.drive_id, m.guest_path, "
    "m.source, m.first_bytes,"
    " m.largest_bytes, m.hypervisor_bytes, m.guest_bytes, m.guest_synced_bytes,"
    " m.hypervisor_reason, m.guest_reason,"
    " r.resize_id, r.from_bytes, r.to_bytes,"
    " (SELECT count(*) FROM entries o JOIN entry_sandboxes n"
    "  ON n.entry_id = o.entry_id WHERE o.volume_id = v.volume_id AND o.gone = 0), e.subpaths"
    " FROM volumes v"
    " LEFT JOIN entries e ON e.entry_id = v.entry_id"
    " LEFT JOIN devices d ON d.device_id = v.device_id"
    " LEFT JOIN mappings m ON m.volume_id = v.volume_id AND m.until IS NULL"
    " LEFT JOIN devices b ON b.device_id = m.device_id"
    " LEFT JOIN resizes r ON r.volume_id = v.volume_id AND r.finished_at IS NULL"
    " WHERE v.volume_id = ?1";

/* No DISTINCT and no ORDER BY here or below: each would build a table of its own, which costs more
 * than the rest of the query. Who takes the rows skips and compares. */
#define SANDBOX                                                                                    \
    "s.sandbox_ref, s.sandbox_id, s.runtime, s.hypervisor, s.vmm_pid, s.vmm_start_ns,"             \
    " s.control_socket, s.agent_address, s.companion_ability, s.agent_ability, s.shim_ability"

static const char select_named_sandboxes[] =
    "SELECT " SANDBOX ", CASE n.published WHEN 1 THEN 'api' ELSE 'sandbox-file' END, NULL"
    " FROM entries e"
    " JOIN entry_sandboxes n ON n.entry_id = e.entry_id"
    " JOIN sandboxes s ON s.sandbox_id = n.sandbox_id AND s.gone_at IS NULL"
    " WHERE e.volume_id = ?1 AND e.gone = 0";

/* Claims end with their sandbox. */
static const char select_claiming_sandboxes[] =
    "SELECT " SANDBOX ", c.source, c.guest_path FROM sandbox_claims c"
    " JOIN sandboxes s ON s.sandbox_ref = c.sandbox_ref WHERE c.path = ?1";

/* A runtime that finds the metadata by a prefix of what is mounted, as KEP-2857 wants it, goes
 * round nothing: it leaves its file beside the metadata and attaches the device, and no container
 * has the whole path, for which any runtime does so. A part that the kubelet binds elsewhere has no
 * such prefix. */
#define UNSERVED                                                                                   \
    " AND NOT (NOT EXISTS (SELECT 1 FROM sandbox_claims w"                                         \
    "  WHERE w.sandbox_ref = c.sandbox_ref AND w.path = ?1)"                                       \
    " AND EXISTS (SELECT 1 FROM sandbox_drives d"                                                  \
    "  WHERE d.sandbox_ref = c.sandbox_ref AND d.major = ?4 AND d.minor = ?5)"                     \
    " AND EXISTS (SELECT 1 FROM entries e JOIN entry_sandboxes n ON n.entry_id = e.entry_id"       \
    "  JOIN sandboxes s ON s.sandbox_id = n.sandbox_id AND s.gone_at IS NULL"                      \
    "  WHERE e.volume_id = ?3 AND e.gone = 0 AND s.sandbox_ref = c.sandbox_ref))"

/* CLAIMS_WITHIN in two halves, for its OR would build a table as well. */
#define CLAIMING_BENEATH(path)                                                                     \
    "SELECT c.sandbox_ref FROM sandbox_claims c WHERE " CLAIM_BENEATH(path) AND_NO_VOLUME
static const char select_bypassing_sandboxes[] =
    CLAIMING_BENEATH("?1") UNSERVED " UNION ALL " CLAIMING_BENEATH("?2");

/* The same number is the same device; the path as written is what the runtime was given, and leads
 * to the drive even if it points elsewhere by now. */
static const char select_drive[] =
    "SELECT 2 * (?5 AND major = ?3 AND minor = ?4) + (mount_source IS ?2),"
    " ?5 AND mount_source = ?2 AND major >= 0 AND (major <> ?3 OR minor <> ?4), drive_id,"
    " guest_path FROM sandbox_drives WHERE sandbox_ref = ?1"
    " AND ((?5 AND major = ?3 AND minor = ?4) OR mount_source = ?2 OR file = ?2 OR file = ?6)";

static const char select_shared[] =
    "SELECT 1 FROM volumes w WHERE w.device_id = ?2 AND w.volume_id <> ?1 AND w.removed_at IS NULL"
    " AND (EXISTS (SELECT 1 FROM entries e JOIN entry_sandboxes n ON n.entry_id = e.entry_id"
    "   JOIN sandboxes s ON s.sandbox_id = n.sandbox_id AND s.gone_at IS NULL"
    "   WHERE e.volume_id = w.volume_id AND e.gone = 0 AND s.sandbox_ref <> ?3)"
    "  OR EXISTS (SELECT 1 FROM sandbox_claims c WHERE c.path = w.target_path"
    "   AND c.sandbox_ref <> ?3)) LIMIT 1";

static enum store_status status_from_name(const char *name)
{
    static const char *const names[] = {"present", "invalid", "quarantined", "removed"};

    for (size_t i = 0; i < array_length(names); i++)
        if (strcmp(name, names[i]) == 0)
            return (enum store_status)i;
    return STORE_INVALID;
}

#define TAKE_TEXT(rows, array) sql_take_text(rows, array, sizeof(array))

static void take_volume(struct sql_rows *rows, struct store_volume *volume)
{
    volume->status = status_from_name(sql_borrow_text(rows));
    volume->policy = (enum store_policy)sql_take_number(rows);
    TAKE_TEXT(rows, volume->target_path);
    TAKE_TEXT(rows, volume->key);
    TAKE_TEXT(rows, volume->volume_type);
    TAKE_TEXT(rows, volume->device_path);
    TAKE_TEXT(rows, volume->other_device_path);
    TAKE_TEXT(rows, volume->state);
    TAKE_TEXT(rows, volume->reason);
    volume->attempts = (uint32_t)sql_take_number(rows);
    volume->next_attempt_ns = (uint64_t)sql_take_number(rows);
}

static enum store_device_kind kind_from_name(const char *name)
{
    if (strcmp(name, "file") == 0)
        return STORE_FILE;
    return strcmp(name, "other") == 0 ? STORE_OTHER : STORE_BLOCK;
}

static void take_device(struct sql_rows *rows, struct store_volume *volume)
{
    unsigned state;

    volume->device_id = sql_take_number(rows);
    volume->device_kind = kind_from_name(sql_borrow_text(rows));
    TAKE_TEXT(rows, volume->device_name);
    volume->major = (uint32_t)sql_take_number(rows);
    volume->minor = (uint32_t)sql_take_number(rows);
    volume->diskseq = (uint64_t)sql_take_number(rows);
    volume->file_device = (uint64_t)sql_take_number(rows);
    volume->inode = (uint64_t)sql_take_number(rows);
    volume->device_bytes = (uint64_t)sql_take_number(rows);
    volume->size_since_ns = (uint64_t)sql_take_number(rows);
    volume->size_changed = sql_take_number(rows) != 0;
    volume->device_announced = sql_take_number(rows) != 0;
    state = (unsigned)sql_take_number(rows);
    volume->has_layers = state > 0;
    volume->layers_state = state - volume->has_layers;
}

static void take_mapping(struct sql_rows *rows, struct store_volume *volume)
{
    volume->mapping_id = sql_take_number(rows);
    volume->mapping_device_id = sql_take_number(rows);
    volume->mapping_major = (uint32_t)sql_take_number(rows);
    volume->mapping_minor = (uint32_t)sql_take_number(rows);
    volume->mapping_sandbox_ref = sql_take_number(rows);
    TAKE_TEXT(rows, volume->drive_id);
    TAKE_TEXT(rows, volume->guest_path);
    TAKE_TEXT(rows, volume->mapping_source);
    volume->first_bytes = (uint64_t)sql_take_number(rows);
    volume->largest_bytes = (uint64_t)sql_take_number(rows);
    volume->hypervisor_bytes = (uint64_t)sql_take_number(rows);
    volume->guest_bytes = (uint64_t)sql_take_number(rows);
    volume->guest_synced_bytes = (uint64_t)sql_take_number(rows);
    TAKE_TEXT(rows, volume->hypervisor_reason);
    TAKE_TEXT(rows, volume->guest_reason);
}

static int load_volume(struct store *store, struct store_volume *volume,
                       char ret_subpaths[static STORE_PATH_BYTES])
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first(&store->connection, select_volume, &rows, sql_number(volume->volume_id));

    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    take_volume(&rows, volume);
    take_device(&rows, volume);
    take_mapping(&rows, volume);
    volume->resize_id = sql_take_number(&rows);
    volume->resize_from_bytes = (uint64_t)sql_take_number(&rows);
    volume->resize_to_bytes = (uint64_t)sql_take_number(&rows);
    volume->named_sandboxes = (unsigned)sql_take_number(&rows);
    sql_take_text(&rows, ret_subpaths, STORE_PATH_BYTES);
    return 0;
}

static void take_sandbox(struct sql_rows *rows, struct store_volume *volume)
{
    TAKE_TEXT(rows, volume->sandbox_id);
    TAKE_TEXT(rows, volume->runtime);
    TAKE_TEXT(rows, volume->hypervisor);
    volume->vmm_pid = (pid_t)sql_take_number(rows);
    volume->vmm_start_ns = (uint64_t)sql_take_number(rows);
    TAKE_TEXT(rows, volume->control_socket);
    TAKE_TEXT(rows, volume->agent_address);
    for (size_t i = 0; i < STORE_ROUTES; i++)
        TAKE_TEXT(rows, volume->ability[i]);
}

static void forget_sandbox(struct store_volume *volume)
{
    volume->sandbox_ref = 0;
    volume->vmm_pid = 0;
    volume->vmm_start_ns = 0;
    volume->sandbox_id[0] = volume->runtime[0] = volume->hypervisor[0] = '\0';
    volume->control_socket[0] = volume->agent_address[0] = '\0';
    volume->binding_source[0] = volume->recorded_guest_path[0] = '\0';
    for (size_t i = 0; i < STORE_ROUTES; i++)
        volume->ability[i][0] = '\0';
}

/* Who is both named and claims it, or is named in both layouts, is one sandbox. */
static int take_sandboxes(struct sql_rows *rows, struct store_volume *volume)
{
    int r;

    while ((r = sql_next(rows)) > 0) {
        int64_t sandbox_ref = sql_take_number(rows);
        bool is_known = sandbox_ref == volume->sandbox_ref;
        char source[sizeof(volume->binding_source)];

        if (!is_known) {
            volume->live_sandboxes++;
            volume->sandbox_ref = sandbox_ref;
        }
        take_sandbox(rows, volume);
        TAKE_TEXT(rows, source);
        if (!is_known)
            memcpy(volume->binding_source, source, sizeof(source));
        TAKE_TEXT(rows, volume->recorded_guest_path);
    }
    return r;
}

/* Who has a part of it only; who has it whole as well was counted. */
static int take_bypassing(struct sql_rows *rows, struct store_volume *volume)
{
    int64_t known = volume->sandbox_ref;
    int r;

    while ((r = sql_next(rows)) > 0) {
        int64_t sandbox_ref = sql_take_number(rows);

        volume->bypassed = true;
        if (sandbox_ref != known)
            volume->live_sandboxes++;
        known = sandbox_ref;
    }
    return r;
}

static int load_sandbox(struct store *store, const char *subpaths, struct store_volume *volume)
{
    cleanup(sql_end) struct sql_rows named = {0}, claiming = {0}, bypassing = {0};
    int r = sql_query(&store->connection, select_named_sandboxes, &named,
                      sql_number(volume->volume_id));

    if (r == 0)
        r = take_sandboxes(&named, volume);
    if (r == 0)
        r = sql_query(&store->connection, select_claiming_sandboxes, &claiming,
                      sql_text(volume->target_path));
    if (r == 0)
        r = take_sandboxes(&claiming, volume);
    if (r == 0)
        r = sql_query(&store->connection, select_bypassing_sandboxes, &bypassing,
                      sql_text(volume->target_path), sql_text(subpaths),
                      sql_number(volume->volume_id), sql_number(volume->major),
                      sql_number(volume->minor));
    if (r == 0)
        r = take_bypassing(&bypassing, volume);
    if (volume->live_sandboxes > 1)
        forget_sandbox(volume);
    return r;
}

enum { NUMBER_AND_PATH = 3 }; /* the best that a record can be for a volume */

static int load_drive(struct store *store, struct store_volume *volume)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    bool by_number = volume->device_id && volume->device_kind == STORE_BLOCK;
    int64_t best = -1;
    int r;

    if (!volume->sandbox_ref)
        return 0;
    r = sql_query(&store->connection, select_drive, &rows, sql_number(volume->sandbox_ref),
                  sql_text(volume->device_path), sql_number(volume->major),
                  sql_number(volume->minor), sql_number(by_number), sql_text(volume->device_name));
    while (r == 0 && (r = sql_next(&rows)) > 0) {
        int64_t rank = sql_take_number(&rows);

        r = 0;
        volume->record_contradicts |= sql_take_number(&rows) != 0;
        if (rank <= best)
            continue;
        best = rank;
        TAKE_TEXT(&rows, volume->recorded_drive_id);
        TAKE_TEXT(&rows, volume->recorded_guest_path);
    }
    volume->record_contradicts &= best < NUMBER_AND_PATH;
    return r;
}

static int load_shared(struct store *store, struct store_volume *volume)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r;

    if (!volume->device_id)
        return 0;
    r = sql_first(&store->connection, select_shared, &rows, sql_number(volume->volume_id),
                  sql_number(volume->device_id), sql_number(volume->sandbox_ref));
    volume->device_shared = r > 0;
    return r < 0 ? r : 0;
}

int store_get_volume(struct store *store, int64_t volume_id, struct store_volume *ret_volume)
{
    char subpaths[STORE_PATH_BYTES];
    struct store_volume volume;
    int r;

    memset(&volume, 0, sizeof(volume));
    volume.volume_id = volume_id;
    r = load_volume(store, &volume, subpaths);
    if (r == 0)
        r = load_sandbox(store, subpaths, &volume);
    if (r == 0)
        r = load_drive(store, &volume);
    if (r == 0)
        r = load_shared(store, &volume);
    if (r == 0)
        memcpy(ret_volume, &volume, sizeof(volume));
    return r;
}

int store_get_volume_itself(struct store *store, struct store_volume *volume)
{
    char subpaths[STORE_PATH_BYTES];

    return load_volume(store, volume, subpaths);
}

/* ---- state --------------------------------------------------------------------------------- */

struct known_state {
    char state[STORE_NAME_BYTES];
    char reason[STORE_NAME_BYTES];
    bool removed;
};

static int find_state(struct store *store, int64_t volume_id, struct known_state *ret_known)
{
    static const char find[] =
        "SELECT state, reason, status = 'removed' FROM volumes WHERE volume_id = ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first(&store->connection, find, &rows, sql_number(volume_id));

    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    TAKE_TEXT(&rows, ret_known->state);
    TAKE_TEXT(&rows, ret_known->reason);
    ret_known->removed = sql_take_number(&rows) != 0;
    return 0;
}

static int write_state(struct store *store, int64_t volume_id, const struct known_state *old,
                       const char *state, const char *reason)
{
    static const char set[] =
        "UPDATE volumes SET state = ?2, reason = ?3, state_since = ?4 WHERE volume_id = ?1";
    char before[2 * STORE_NAME_BYTES], after[2 * STORE_NAME_BYTES];
    int r = sql_run(&store->connection, set, NULL, sql_number(volume_id), sql_text(state),
                    sql_text(reason), sql_number(store->now_ms));

    (void)snprintf(before, sizeof(before), "%s/%s", old->state, old->reason);
    (void)snprintf(after, sizeof(after), "%s/%s", state, reason);
    return r < 0
               ? r
               : journal_write(store, &(struct journal_line){.kind = "state_changed",
                                                             .volume_id = volume_id,
                                                             .detail = {{"from", sql_text(before)},
                                                                        {"to", sql_text(after)}}});
}

static int follow_state(struct store *store, int64_t volume_id, const char *state,
                        const char *reason, bool finish)
{
    static const char follow[] = "UPDATE resizes SET state = ?2, reason = ?3, finished_at = ?4"
                                 " WHERE volume_id = ?1 AND finished_at IS NULL"
                                 " AND (?4 IS NOT NULL OR (state, reason) IS NOT (?2, ?3))";
    int changes = 0;
    int r = sql_run(&store->connection, follow, &changes, sql_number(volume_id), sql_text(state),
                    sql_text(reason), finish ? sql_number(store->now_ms) : sql_known(0));

    if (r == 0 && changes)
        r = count_growth(store, volume_id, state, reason, finish);
    if (r < 0 || !finish || !changes)
        return r;
    return journal_write(store, &(struct journal_line){.kind = "resize_finished",
                                                       .volume_id = volume_id,
                                                       .detail = {{"state", sql_text(state)}}});
}

int store_set_state(struct store *store, int64_t volume_id, const char *state, const char *reason,
                    bool *ret_changed)
{
    struct known_state old;
    bool changed, finish;
    int r = find_state(store, volume_id, &old);

    if (r < 0)
        return r;
    changed = strcmp(old.state, state) != 0 || strcmp(old.reason, reason) != 0;
    finish = old.removed || strcmp(state, "in_sync") == 0 || strcmp(state, "unmanaged") == 0;
    if (changed)
        r = write_state(store, volume_id, &old, state, reason);
    if (r == 0)
        r = follow_state(store, volume_id, state, reason, finish);
    if (r == 0 && ret_changed)
        *ret_changed = changed;
    return r;
}

/* ---- waiting ------------------------------------------------------------------------------- */

int store_set_attempts(struct store *store, int64_t volume_id, uint32_t attempts,
                       uint64_t next_attempt_ns, int64_t next_attempt_ms)
{
    static const char set[] =
        "UPDATE volumes SET attempts = ?2, next_attempt_ns = ?3, next_attempt_ms = ?4"
        " WHERE volume_id = ?1"
        " AND (attempts, next_attempt_ns, next_attempt_ms) IS NOT (?2, ?3, ?4)";
    uint64_t shown_ms = next_attempt_ns ? (uint64_t)next_attempt_ms : 0;

    return sql_run(&store->connection, set, NULL, sql_number(volume_id), sql_number(attempts),
                   sql_known(next_attempt_ns), sql_known(shown_ms));
}

int volume_clear_attempts(struct store *store, int64_t volume_id)
{
    return store_set_attempts(store, volume_id, 0, 0, 0);
}

int store_next_attempt(struct store *store, uint64_t after_ns, uint64_t *ret_ns)
{
    static const char next[] =
        "SELECT min(next_attempt_ns) FROM volumes WHERE next_attempt_ns > ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    uint64_t next_ns;
    int r = sql_first(&store->connection, next, &rows, sql_number((int64_t)after_ns));

    if (r < 0)
        return r;
    next_ns = (uint64_t)sql_take_number(&rows);
    *ret_ns = next_ns ? next_ns : UINT64_MAX;
    return 0;
}

bool store_awaits_stillness(struct store *store)
{
    static const char find[] = "SELECT 1 FROM volumes WHERE next_attempt_ns IS NOT NULL"
                               " AND attempts = 0 AND removed_at IS NULL LIMIT 1";
    cleanup(sql_end) struct sql_rows rows = {0};

    return sql_query_values(&store->connection, find, &rows, NULL, 0) == 0 && sql_next(&rows) > 0;
}

int store_forget_waiting(struct store *store)
{
    static const char volumes[] =
        "UPDATE volumes SET attempts = 0, next_attempt_ns = NULL, next_attempt_ms = NULL"
        " WHERE attempts <> 0 OR next_attempt_ns IS NOT NULL";
    static const char sandboxes[] =
        "UPDATE sandboxes SET companion_ability = NULL, agent_ability = NULL, shim_ability = NULL"
        " WHERE gone_at IS NULL AND coalesce(companion_ability, agent_ability, shim_ability)"
        " IS NOT NULL";
    static const char *const steps[] = {volumes, sandboxes};
    int r = 0;

    for (size_t i = 0; r == 0 && i < array_length(steps); i++)
        r = sql_run_values(&store->connection, steps[i], NULL, NULL, 0);
    return r;
}

int store_forget_waiting_of(struct store *store, int64_t sandbox_ref)
{
    static const char volumes[] =
        "UPDATE volumes SET attempts = 0, next_attempt_ns = NULL, next_attempt_ms = NULL"
        " WHERE volume_id IN (SELECT volume_id FROM mappings WHERE sandbox_ref = ?1"
        "  AND until IS NULL) AND (attempts <> 0 OR next_attempt_ns IS NOT NULL)";

    return sql_run(&store->connection, volumes, NULL, sql_number(sandbox_ref));
}

/* ---- who else is touched ------------------------------------------------------------------- */

#define EACH_VOLUME(store, text, callback, userdata, ...)                                          \
    each_volume(store, text, callback, userdata, SQL_VALUES(__VA_ARGS__))

static int each_volume(struct store *store, const char *text, store_volume_callback *callback,
                       void *userdata, const struct sql_value *values, size_t count)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(&store->connection, text, &rows, values, count);

    while (r == 0 && (r = sql_next(&rows)) > 0)
        r = callback(userdata, sql_take_number(&rows));
    return r;
}

int store_each_volume_of_device(struct store *store, uint32_t major, uint32_t minor,
                                store_volume_callback *callback, void *userdata)
{
    static const char text[] =
        "SELECT v.volume_id FROM devices d JOIN volumes v ON v.device_id = d.device_id"
        " WHERE d.kind = 'block' AND d.major = ?1 AND d.minor = ?2 AND d.boot_id = ?3"
        " AND v.removed_at IS NULL"
        " UNION ALL SELECT v.volume_id FROM devices d JOIN layers l ON l.layer_id = d.device_id"
        " JOIN volumes v ON v.device_id = l.device_id"
        " WHERE d.kind = 'block' AND d.major = ?1 AND d.minor = ?2 AND d.boot_id = ?3"
        " AND v.removed_at IS NULL";

    return EACH_VOLUME(store, text, callback, userdata, sql_number(major), sql_number(minor),
                       sql_text(store->boot_id));
}

int store_each_volume_of_device_id(struct store *store, int64_t device_id,
                                   store_volume_callback *callback, void *userdata)
{
    static const char text[] =
        "SELECT volume_id FROM volumes WHERE device_id = ?1 AND removed_at IS NULL";

    return EACH_VOLUME(store, text, callback, userdata, sql_number(device_id));
}

int store_each_volume_beside(struct store *store, const char *key, store_volume_callback *callback,
                             void *userdata)
{
    static const char text[] =
        "SELECT w.volume_id FROM entries e JOIN volumes v ON v.volume_id = e.volume_id"
        " JOIN volumes w ON w.device_id = v.device_id AND w.volume_id <> v.volume_id"
        " WHERE e.key = ?1 AND e.gone = 0 AND w.removed_at IS NULL";

    return EACH_VOLUME(store, text, callback, userdata, sql_text(key));
}

int store_each_volume_of_sandbox(struct store *store, const char *sandbox_id,
                                 store_volume_callback *callback, void *userdata)
{
    static const char text[] =
        "SELECT e.volume_id FROM entry_sandboxes n JOIN entries e ON e.entry_id = n.entry_id"
        " WHERE n.sandbox_id = ?1 AND e.gone = 0"
        " UNION SELECT m.volume_id FROM sandboxes s JOIN mappings m"
        " ON m.sandbox_ref = s.sandbox_ref AND m.until IS NULL"
        " WHERE s.sandbox_id = ?1 AND s.gone_at IS NULL"
        " UNION SELECT v.volume_id FROM sandboxes s JOIN sandbox_claims c"
        " ON c.sandbox_ref = s.sandbox_ref JOIN volumes v ON v.target_path = c.path"
        " AND v.removed_at IS NULL WHERE s.sandbox_id = ?1 AND s.gone_at IS NULL";

    return EACH_VOLUME(store, text, callback, userdata, sql_text(sandbox_id));
}

int store_each_bypassed_volume(struct store *store, const char *sandbox_id,
                               store_volume_callback *callback, void *userdata)
{
    /* Every path above a claim, each once: rtrim() takes the last part off. */
    static const char text[] =
        "WITH RECURSIVE above (path) AS (SELECT c.path FROM sandboxes s JOIN sandbox_claims c"
        " ON c.sandbox_ref = s.sandbox_ref WHERE s.sandbox_id = ?1 AND s.gone_at IS NULL"
        " UNION SELECT rtrim(rtrim(path, replace(path, '/', '')), '/') FROM above WHERE path <> '')"
        " SELECT v.volume_id FROM above a JOIN volumes v ON v.target_path = a.path"
        " AND v.removed_at IS NULL"
        " UNION SELECT e.volume_id FROM above a JOIN entries e ON e.subpaths = a.path"
        " AND e.gone = 0"
        " UNION SELECT volume_id FROM volumes WHERE state = 'blocked' AND reason = 'bypassed'";

    return EACH_VOLUME(store, text, callback, userdata, sql_text(sandbox_id));
}

int store_each_volume(struct store *store, store_volume_callback *callback, void *userdata)
{
    static const char text[] = "SELECT volume_id FROM volumes WHERE removed_at IS NULL";

    return each_volume(store, text, callback, userdata, NULL, 0);
}

int store_each_bound_volume(struct store *store, store_volume_callback *callback, void *userdata)
{
    static const char text[] =
        "SELECT volume_id FROM mappings WHERE until IS NULL"
        " UNION SELECT volume_id FROM volumes WHERE state = 'blocked' AND removed_at IS NULL";

    return each_volume(store, text, callback, userdata, NULL, 0);
}

int store_each_volume_without_device(struct store *store, store_volume_callback *callback,
                                     void *userdata)
{
    static const char text[] = "SELECT volume_id FROM volumes"
                               " WHERE device_id IS NULL AND removed_at IS NULL"
                               " AND status = 'present'";

    return each_volume(store, text, callback, userdata, NULL, 0);
}

int store_each_volume_due(struct store *store, uint64_t now_ns, store_volume_callback *callback,
                          void *userdata)
{
    static const char text[] =
        "SELECT volume_id FROM volumes WHERE next_attempt_ns <= ?1 AND removed_at IS NULL";

    return EACH_VOLUME(store, text, callback, userdata, sql_number((int64_t)now_ns));
}
