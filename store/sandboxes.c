/* SPDX-License-Identifier: Apache-2.0 */
/* sandboxes.c - the VMs on this node, and what each turned out to be able to do.
 *
 * One live row per sandbox id. Its identity is the VMM process (pid and start time): the same id
 * with another VMM is another sandbox, so the old row ends, with its mappings. The drives are the
 * runtime's own record of which device has which drive and guest path, the claims are the volume
 * paths that its containers mount; both are facts about the present only and go when the sandbox
 * does.
 *
 * The abilities are conclusions, not facts: "this agent does not implement the call". They hold as
 * long as what was asked stays the same, so another monitor or agent address clears them.
 */
#include <string.h>
#include <sys/sysmacros.h>

#include "store/store_internal.h"

struct known_sandbox {
    int64_t sandbox_ref; /* 0: none alive */
    pid_t vmm_pid;
    uint64_t vmm_start_ns;
    bool orphaned;
};

static int find_alive(struct store *store, const char *sandbox_id, struct known_sandbox *ret_known)
{
    static const char find[] = "SELECT sandbox_ref, vmm_pid, vmm_start_ns, orphaned FROM sandboxes"
                               " WHERE sandbox_id = ?1 AND gone_at IS NULL";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_FIRST(store, find, &rows, sandbox_id);

    TAKE(&rows, ret_known->sandbox_ref, ret_known->vmm_pid, ret_known->vmm_start_ns,
         ret_known->orphaned);
    return r < 0 ? r : 0;
}

static int end_sandbox(struct store *store, int64_t sandbox_ref, const char *sandbox_id)
{
    static const char next[] =
        "SELECT volume_id FROM mappings WHERE sandbox_ref = ?1 AND until IS NULL LIMIT 1";
    static const char end[] = "UPDATE sandboxes SET gone_at = ?2 WHERE sandbox_ref = ?1;"
                              "DELETE FROM sandbox_drives WHERE sandbox_ref = ?1;"
                              "DELETE FROM sandbox_claims WHERE sandbox_ref = ?1";

    for (int64_t volume_id; (volume_id = STORE_NUMBER(store, next, sandbox_ref));)
        store_close_binding(store, volume_id);
    STORE_RUN(store, end, sandbox_ref, store->now_ms);
    return JOURNAL(store, "sandbox_gone", ABOUT(.sandbox_id = sandbox_id));
}

static int64_t add_sandbox(struct store *store, const struct store_sandbox *sandbox)
{
    static const char insert[] =
        "INSERT INTO sandboxes (boot_id, sandbox_id, runtime, hypervisor, vmm_pid, vmm_start_ns,"
        " control_socket, agent_address, pod_namespace, pod_name, first_seen)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

    STORE_RUN(store, insert, store->boot_id, sandbox->sandbox_id, runtime_name(sandbox->runtime),
              hypervisor_name(sandbox->hypervisor), sql_known(sandbox->vmm_pid),
              sql_known(sandbox->vmm_start_ns), sandbox->control_socket, sandbox->agent_address,
              sandbox->pod_namespace, sandbox->pod_name, store->now_ms);
    return sqlite3_last_insert_rowid(store->connection.db);
}

static bool change_sandbox(struct store *store, const struct store_sandbox *sandbox, int64_t ref)
{
    static const char forget_abilities[] =
        "UPDATE sandboxes SET companion_ability = NULL, agent_ability = NULL,"
        " shim_ability = NULL, helper_ability = NULL"
        " WHERE sandbox_ref = ?1 AND (control_socket, agent_address)"
        " IS NOT (?4, coalesce(?5, agent_address))";
    /* What only a bundle names stays when the bundle goes, as with an orphan. */
    static const char change[] = "UPDATE sandboxes" SET_IF_OTHER(
        "runtime, hypervisor, control_socket, agent_address, pod_namespace, pod_name",
        "?2, ?3, ?4, coalesce(?5, agent_address), coalesce(?6, pod_namespace),"
        " coalesce(?7, pod_name)") " AND sandbox_ref = ?1";
    const struct sql_value values[] = {
        sql_number(ref),
        sql_text(runtime_name(sandbox->runtime)),
        sql_text(hypervisor_name(sandbox->hypervisor)),
        sql_text(sandbox->control_socket),
        sql_text(sandbox->agent_address),
        sql_text(sandbox->pod_namespace),
        sql_text(sandbox->pod_name),
    };

    sql_change_values(&store->connection, forget_abilities, values, array_length(values));
    return sql_change_values(&store->connection, change, values, array_length(values)) > 0;
}

/* Whether any is not as before. */
static bool write_drives(struct store *store, const struct store_drive *drive, unsigned drives,
                         int64_t ref)
{
    static const char put[] =
        "INSERT INTO sandbox_drives (sandbox_ref, position, mount_source, file, major, minor,"
        " drive_id, guest_path) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO "
        "UPDATE" SET_IF_OTHER("mount_source, file, major, minor, drive_id, guest_path",
                              "?3, ?4, ?5, ?6, ?7, ?8");
    bool changed =
        STORE_CHANGE(store, "DELETE FROM sandbox_drives WHERE sandbox_ref = ?1 AND position >= ?2",
                     ref, drives) > 0;

    for (unsigned i = 0; i < drives; i++, drive++)
        changed |= STORE_CHANGE(store, put, ref, i, drive->mount_source, drive->file, drive->major,
                                drive->minor, drive->drive_id, drive->guest_path) > 0;
    return changed;
}

static bool write_claims(struct store *store, const struct store_sandbox *sandbox, int64_t ref)
{
    static const char put[] =
        "INSERT INTO sandbox_claims (sandbox_ref, path, source, guest_path, carrier, drive, major,"
        " minor) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE" SET_IF_OTHER(
            "source, guest_path, carrier, drive, major, minor", "?3, ?4, ?5, ?6, ?7, ?8");
    bool changed = store_delete_others(
        store, "SELECT path FROM sandbox_claims WHERE sandbox_ref = ?1",
        "DELETE FROM sandbox_claims WHERE sandbox_ref = ?1 AND path = ?2", ref,
        sandbox->claims ? &sandbox->claim->path : NULL, sizeof(*sandbox->claim), sandbox->claims);

    for (unsigned i = 0; i < sandbox->claims; i++) {
        const struct store_claim *claim = &sandbox->claim[i];

        changed |= STORE_CHANGE(store, put, ref, claim->path, claim->source, claim->guest_path,
                                claim->carrier, claim->drive, sql_known(major(claim->given)),
                                claim->given ? sql_number(minor(claim->given)) : sql_known(0)) > 0;
    }
    return changed;
}

int store_find_given_device(struct store *store, const char *path, dev_t *ret_device)
{
    static const char find[] = "SELECT major, minor FROM sandbox_claims"
                               " WHERE path = ?1 AND major IS NOT NULL LIMIT 1";
    cleanup(sql_end) struct sql_rows rows = {0};
    uint32_t major, minor;

    STORE_FIRST(store, find, &rows, path);
    TAKE(&rows, major, minor);
    *ret_device = makedev(major, minor);
    return STORE_RESULT(store);
}

int store_put_sandbox(struct store *store, const struct store_sandbox *sandbox,
                      int64_t *ret_sandbox_ref, bool *ret_changed)
{
    struct known_sandbox known;
    bool added, changed = false;
    int r = find_alive(store, sandbox->sandbox_id, &known);

    if (r < 0)
        return r;
    if (known.sandbox_ref &&
        (known.vmm_pid != sandbox->vmm_pid || known.vmm_start_ns != sandbox->vmm_start_ns)) {
        end_sandbox(store, known.sandbox_ref, sandbox->sandbox_id);
        known = (struct known_sandbox){0};
    }
    added = !known.sandbox_ref;
    if (added)
        known.sandbox_ref = add_sandbox(store, sandbox);
    else
        changed = change_sandbox(store, sandbox, known.sandbox_ref);
    if (!known.orphaned) { /* its drives are what it has open */
        changed |= write_drives(store, sandbox->drive, sandbox->drives, known.sandbox_ref);
        changed |= write_claims(store, sandbox, known.sandbox_ref);
    }
    *ret_sandbox_ref = known.sandbox_ref;
    *ret_changed = added || changed;
    if (!*ret_changed)
        return STORE_RESULT(store);
    return JOURNAL(store, added ? "sandbox_alive" : "sandbox_changed",
                   ABOUT(.sandbox_id = sandbox->sandbox_id), "vmm_pid", sql_known(sandbox->vmm_pid),
                   "control_socket", sandbox->control_socket, "agent_address",
                   sandbox->agent_address, "drives", sandbox->drives);
}

int store_set_problem(struct store *store, const char *sandbox_id, const char *problem,
                      bool *ret_changed)
{
    static const char set[] = "UPDATE sandboxes SET problem = ?2 WHERE sandbox_id = ?1"
                              " AND gone_at IS NULL AND problem IS NOT ?2";

    *ret_changed = STORE_CHANGE(store, set, sandbox_id, problem) > 0;
    return STORE_RESULT(store);
}

int store_find_problem(struct store *store, char *ret_text, size_t size)
{
    STORE_FIND_TEXT(store,
                    "SELECT sandbox_id || ': ' || problem FROM sandboxes"
                    " WHERE problem IS NOT NULL AND gone_at IS NULL LIMIT 1",
                    ret_text, size);
    return STORE_RESULT(store);
}

int store_set_orphaned(struct store *store, const char *sandbox_id, bool orphaned,
                       const struct store_drive *held, unsigned count, bool *ret_changed)
{
    static const char has_twin[] = "SELECT 1 FROM sandboxes WHERE vmm_pid = ?1"
                                   " AND gone_at IS NULL AND sandbox_ref <> ?2";
    struct known_sandbox known;
    bool changed, wrote = false;

    find_alive(store, sandbox_id, &known);
    orphaned = orphaned && !STORE_HAS(store, has_twin, known.vmm_pid, known.sandbox_ref);
    changed =
        STORE_CHANGE(store,
                     "UPDATE sandboxes SET orphaned = ?2 WHERE sandbox_ref = ?1 AND orphaned <> ?2",
                     known.sandbox_ref, orphaned) > 0;
    if (orphaned && changed) /* they were places in the runtime's list of drives */
        STORE_RUN(store, "UPDATE sandbox_claims SET drive = -1 WHERE sandbox_ref = ?1",
                  known.sandbox_ref);
    if (orphaned && count)
        wrote = write_drives(store, held, count, known.sandbox_ref);
    *ret_changed = changed || wrote;
    if (!changed)
        return STORE_RESULT(store);
    return JOURNAL(store, "sandbox_changed", ABOUT(.sandbox_id = sandbox_id), "status",
                   orphaned ? "orphaned" : "alive", "vmm_pid", known.vmm_pid);
}

int store_end_sandbox(struct store *store, const char *sandbox_id, bool *ret_changed)
{
    struct known_sandbox known;
    int r = find_alive(store, sandbox_id, &known);

    if (r == 0 && known.sandbox_ref)
        r = end_sandbox(store, known.sandbox_ref, sandbox_id);
    if (r == 0)
        *ret_changed = known.sandbox_ref != 0;
    return r;
}

int store_find_vmm(struct store *store, const char *sandbox_id, pid_t *ret_pid,
                   uint64_t *ret_start_ns)
{
    struct known_sandbox known;
    int r = find_alive(store, sandbox_id, &known);

    *ret_pid = known.vmm_pid;
    *ret_start_ns = known.vmm_start_ns;
    return r;
}

int sandboxes_end_other_boots(struct store *store)
{
    static const char next[] = "SELECT sandbox_ref, sandbox_id FROM sandboxes"
                               " WHERE gone_at IS NULL AND boot_id <> ?1 LIMIT 1";

    /* One at a time, because ending a sandbox changes the rows that are searched. */
    for (;;) {
        cleanup(sql_end) struct sql_rows rows = {0};
        char sandbox_id[STORE_SANDBOX_ID_BYTES];
        int64_t ref;

        if (STORE_FIRST(store, next, &rows, store->boot_id) <= 0)
            return STORE_RESULT(store);
        TAKE(&rows, ref, sandbox_id);
        end_sandbox(store, ref, sandbox_id);
    }
}

/* A line about a sandbox of whatever time; none if its row is gone. */
static int journal_of(struct store *store, const char *kind, int64_t sandbox_ref, const char *name,
                      const char *value)
{
    char sandbox_id[STORE_SANDBOX_ID_BYTES];

    if (STORE_FIND_TEXT(store, "SELECT sandbox_id FROM sandboxes WHERE sandbox_ref = ?1",
                        sandbox_id, sizeof(sandbox_id), sandbox_ref) > 0)
        JOURNAL(store, kind, ABOUT(.sandbox_id = sandbox_id), name, value);
    return STORE_RESULT(store);
}

int store_set_agent_address(struct store *store, int64_t sandbox_ref, const char *address)
{
    static const char set[] = "UPDATE sandboxes SET agent_address = ?2 WHERE sandbox_ref = ?1"
                              " AND gone_at IS NULL AND agent_address IS NOT ?2";

    if (STORE_CHANGE(store, set, sandbox_ref, address) > 0)
        journal_of(store, "sandbox_changed", sandbox_ref, "agent_address", address);
    return STORE_RESULT(store);
}

int store_set_vmm_version(struct store *store, int64_t sandbox_ref, const char *version)
{
    static const char set[] = "UPDATE sandboxes SET vmm_version = ?2"
                              " WHERE sandbox_ref = ?1 AND vmm_version IS NOT ?2";

    return STORE_RUN(store, set, sandbox_ref, version);
}

#define SET_ABILITY(column)                                                                        \
    "UPDATE sandboxes SET " column " = ?2 WHERE sandbox_ref = ?1 AND " column " IS NOT ?2"

int store_set_ability(struct store *store, int64_t sandbox_ref, enum guest_route route,
                      const char *ability)
{
    static const char *const set[GUEST_ROUTES] = {
        [ROUTE_COMPANION] = SET_ABILITY("companion_ability"),
        [ROUTE_AGENT] = SET_ABILITY("agent_ability"),
        [ROUTE_SHIM] = SET_ABILITY("shim_ability"),
        [ROUTE_HELPER] = SET_ABILITY("helper_ability"),
    };

    return STORE_RUN(store, set[route], sandbox_ref, ability);
}

/* ---- helper runs ---------------------------------------------------------------------------- */

/* Helpers that were going to be brought into a guest, and are not known to be removed.
 *
 * A row is committed before the first file or container of that name is made, and deleted once both
 * are gone. So after a crash the rows show what may have been left behind, and where.
 */

int store_put_helper_run(struct store *store, int64_t sandbox_ref, const char *name, bool grows)
{
    STORE_RUN(store, "INSERT INTO helper_runs (name, sandbox_ref, begun_at) VALUES (?1, ?2, ?3)",
              name, sandbox_ref, store->now_ms);
    return grows ? journal_of(store, "helper_intended", sandbox_ref, "name", name)
                 : STORE_RESULT(store);
}

int store_forget_helper_run(struct store *store, const char *name)
{
    return STORE_RUN(store, "DELETE FROM helper_runs WHERE name = ?1", name);
}

int store_note_helper_removed(struct store *store, int64_t sandbox_ref, const char *name)
{
    return journal_of(store, "helper_removed", sandbox_ref, "name", name);
}

#define SANDBOX                                                                                    \
    "s.sandbox_ref, s.gone_at IS NULL, s.sandbox_id, s.runtime, s.hypervisor, s.vmm_pid,"          \
    " s.vmm_start_ns, s.control_socket, s.agent_address"

static void take_run(struct sql_rows *rows, struct store_helper_run *run)
{
    const char *runtime, *hypervisor;

    TAKE(rows, run->name, run->sandbox_ref, run->is_alive, run->sandbox_id, runtime, hypervisor,
         run->vmm_pid, run->vmm_start_ns, run->control_socket, run->agent_address);
    run->runtime = runtime_from_name(runtime);
    run->hypervisor = hypervisor_kind_from_name(hypervisor);
}

int store_get_helper_sandbox(struct store *store, int64_t sandbox_ref,
                             struct store_helper_run *ret_run)
{
    static const char find[] = "SELECT '', " SANDBOX " FROM sandboxes s WHERE s.sandbox_ref = ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_FIRST(store, find, &rows, sandbox_ref);

    take_run(&rows, ret_run);
    return r < 0 ? r : 0;
}

int store_each_sandbox(struct store *store, bool of_helpers, store_sandbox_callback *callback,
                       void *userdata)
{
    static const char with_helpers[] = "SELECT h.name, " SANDBOX " FROM helper_runs h"
                                       " JOIN sandboxes s ON s.sandbox_ref = h.sandbox_ref";
    static const char alive[] = "SELECT '', " SANDBOX " FROM sandboxes s WHERE s.gone_at IS NULL";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_QUERY(store, of_helpers ? with_helpers : alive, &rows);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        struct store_helper_run run;

        take_run(&rows, &run);
        r = callback(userdata, &run);
    }
    return r;
}
