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

#include "store/internal.h"

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
    int r = sql_first(&store->connection, find, &rows, sql_text(sandbox_id));

    *ret_known = (struct known_sandbox){0};
    if (r <= 0)
        return r;
    ret_known->sandbox_ref = sql_take_number(&rows);
    ret_known->vmm_pid = (pid_t)sql_take_number(&rows);
    ret_known->vmm_start_ns = (uint64_t)sql_take_number(&rows);
    ret_known->orphaned = sql_take_number(&rows) != 0;
    return 0;
}

static int end_sandbox(struct store *store, int64_t sandbox_ref, const char *sandbox_id)
{
    static const char end[] = "UPDATE sandboxes SET gone_at = ?2 WHERE sandbox_ref = ?1";
    static const char forget_drives[] = "DELETE FROM sandbox_drives WHERE sandbox_ref = ?1";
    static const char forget_claims[] = "DELETE FROM sandbox_claims WHERE sandbox_ref = ?1";
    int r = bindings_close_of_sandbox(store, sandbox_ref);

    if (r == 0)
        r = sql_run(&store->connection, end, NULL, sql_number(sandbox_ref),
                    sql_number(store->now_ms));
    if (r == 0)
        r = sql_run(&store->connection, forget_drives, NULL, sql_number(sandbox_ref));
    if (r == 0)
        r = sql_run(&store->connection, forget_claims, NULL, sql_number(sandbox_ref));
    return r < 0 ? r
                 : journal_write(store, &(struct journal_line){.kind = "sandbox_gone",
                                                               .sandbox_id = sandbox_id});
}

static int add_sandbox(struct store *store, const struct store_sandbox *sandbox, int64_t *ret_ref)
{
    static const char insert[] =
        "INSERT INTO sandboxes (boot_id, sandbox_id, runtime, hypervisor, vmm_pid, vmm_start_ns,"
        " control_socket, agent_address, pod_namespace, pod_name, first_seen)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    int r = sql_run(
        &store->connection, insert, NULL, sql_text(store->boot_id), sql_text(sandbox->sandbox_id),
        sql_text(runtime_name(sandbox->runtime)), sql_text(hypervisor_name(sandbox->hypervisor)),
        sql_known((uint64_t)sandbox->vmm_pid), sql_known(sandbox->vmm_start_ns),
        sql_text(sandbox->control_socket), sql_text(sandbox->agent_address),
        sql_text(sandbox->pod_namespace), sql_text(sandbox->pod_name), sql_number(store->now_ms));

    if (r < 0)
        return r;
    *ret_ref = sqlite3_last_insert_rowid(store->connection.db);
    return 0;
}

/* What only a bundle names stays when the bundle goes, as with an orphan. */
#define SEEN                                                                                       \
    "(?2, ?3, ?4, coalesce(?5, agent_address), coalesce(?6, pod_namespace),"                       \
    " coalesce(?7, pod_name))"

static int change_sandbox(struct store *store, const struct store_sandbox *sandbox, int64_t ref,
                          int *ret_changes)
{
    static const char forget_abilities[] =
        "UPDATE sandboxes SET companion_ability = NULL, agent_ability = NULL,"
        " shim_ability = NULL, helper_ability = NULL"
        " WHERE sandbox_ref = ?1 AND (control_socket, agent_address)"
        " IS NOT (?2, coalesce(?3, agent_address))";
    static const char change[] =
        "UPDATE sandboxes SET (runtime, hypervisor, control_socket, agent_address, pod_namespace,"
        " pod_name) = " SEEN " WHERE sandbox_ref = ?1 AND"
        " (runtime, hypervisor, control_socket, agent_address, pod_namespace, pod_name)"
        " IS NOT " SEEN;
    struct sql_value socket = sql_text(sandbox->control_socket);
    struct sql_value agent = sql_text(sandbox->agent_address);
    int r = sql_run(&store->connection, forget_abilities, NULL, sql_number(ref), socket, agent);

    return r < 0 ? r
                 : sql_run(&store->connection, change, ret_changes, sql_number(ref),
                           sql_text(runtime_name(sandbox->runtime)),
                           sql_text(hypervisor_name(sandbox->hypervisor)), socket, agent,
                           sql_text(sandbox->pod_namespace), sql_text(sandbox->pod_name));
}

#define DRIVE "mount_source, file, major, minor, drive_id, guest_path"
#define NEW_DRIVE                                                                                  \
    "excluded.mount_source, excluded.file, excluded.major, excluded.minor,"                        \
    " excluded.drive_id, excluded.guest_path"

static int write_drives(struct store *store, const struct store_sandbox *sandbox, int64_t ref,
                        int *ret_changes)
{
    static const char put[] =
        "INSERT INTO sandbox_drives (sandbox_ref, position, " DRIVE ")"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE"
        " SET (" DRIVE ") = (" NEW_DRIVE ") WHERE (" DRIVE ") IS NOT (" NEW_DRIVE ")";
    static const char drop[] =
        "DELETE FROM sandbox_drives WHERE sandbox_ref = ?1 AND position >= ?2";
    int r = sql_run(&store->connection, drop, ret_changes, sql_number(ref),
                    sql_number(sandbox->drives));

    for (unsigned i = 0; r == 0 && i < sandbox->drives; i++) {
        const struct store_drive *drive = &sandbox->drive[i];
        int changes = 0;

        r = sql_run(&store->connection, put, &changes, sql_number(ref), sql_number(i),
                    sql_text(drive->mount_source), sql_text(drive->file), sql_number(drive->major),
                    sql_number(drive->minor), sql_text(drive->drive_id),
                    sql_text(drive->guest_path));
        *ret_changes += changes;
    }
    return r;
}

/* Claims that were not recorded this time are deleted. */
static int drop_claims(struct store *store, const struct store_sandbox *sandbox, int64_t ref,
                       int *ret_changes)
{
    static const char all[] = "SELECT path FROM sandbox_claims WHERE sandbox_ref = ?1";
    static const char drop[] = "DELETE FROM sandbox_claims WHERE sandbox_ref = ?1 AND path = ?2";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query(&store->connection, all, &rows, sql_number(ref));

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        const char *path = sql_borrow_text(&rows);
        unsigned i = 0;

        while (i < sandbox->claims && strcmp(sandbox->claim[i].path, path) != 0)
            i++;
        r = 0;
        if (i == sandbox->claims) {
            r = sql_run(&store->connection, drop, NULL, sql_number(ref), sql_text(path));
            ++*ret_changes;
        }
    }
    return r;
}

#define CLAIM     "source, guest_path, carrier, drive"
#define NEW_CLAIM "excluded.source, excluded.guest_path, excluded.carrier, excluded.drive"

static int write_claims(struct store *store, const struct store_sandbox *sandbox, int64_t ref,
                        int *ret_changes)
{
    static const char put[] =
        "INSERT INTO sandbox_claims (sandbox_ref, path, source, guest_path, carrier, drive)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT DO UPDATE"
        " SET (" CLAIM ") = (" NEW_CLAIM ") WHERE (" CLAIM ") IS NOT (" NEW_CLAIM ")";
    int r = drop_claims(store, sandbox, ref, ret_changes);

    for (unsigned i = 0; r == 0 && i < sandbox->claims; i++) {
        const struct store_claim *claim = &sandbox->claim[i];
        int changes = 0;

        r = sql_run(&store->connection, put, &changes, sql_number(ref), sql_text(claim->path),
                    sql_text(claim->source), sql_text(claim->guest_path),
                    sql_number(claim->carrier), sql_number(claim->drive));
        *ret_changes += changes;
    }
    return r;
}

static int journal_sandbox(struct store *store, const struct store_sandbox *sandbox, bool added)
{
    return journal_write(
        store,
        &(struct journal_line){.kind = added ? "sandbox_alive" : "sandbox_changed",
                               .sandbox_id = sandbox->sandbox_id,
                               .detail = {{"vmm_pid", sql_known((uint64_t)sandbox->vmm_pid)},
                                          {"control_socket", sql_text(sandbox->control_socket)},
                                          {"agent_address", sql_text(sandbox->agent_address)},
                                          {"drives", sql_number(sandbox->drives)}}});
}

int store_put_sandbox(struct store *store, const struct store_sandbox *sandbox,
                      int64_t *ret_sandbox_ref, bool *ret_changed)
{
    struct known_sandbox known;
    bool added = false;
    int facts = 0, records = 0;
    int r = find_alive(store, sandbox->sandbox_id, &known);

    if (r == 0 && known.sandbox_ref &&
        (known.vmm_pid != sandbox->vmm_pid || known.vmm_start_ns != sandbox->vmm_start_ns)) {
        r = end_sandbox(store, known.sandbox_ref, sandbox->sandbox_id);
        known.sandbox_ref = 0;
        known.orphaned = false;
    }
    if (r == 0 && !known.sandbox_ref) {
        r = add_sandbox(store, sandbox, &known.sandbox_ref);
        added = true;
    } else if (r == 0) {
        r = change_sandbox(store, sandbox, known.sandbox_ref, &facts);
    }
    if (r == 0 && !known.orphaned) /* its drives are what it has open */
        r = write_drives(store, sandbox, known.sandbox_ref, &records);
    if (r == 0 && !known.orphaned)
        r = write_claims(store, sandbox, known.sandbox_ref, &records);
    if (r == 0 && (added || facts || records))
        r = journal_sandbox(store, sandbox, added);
    if (r < 0)
        return r;
    *ret_sandbox_ref = known.sandbox_ref;
    *ret_changed = added || facts || records;
    return 0;
}

int store_set_problem(struct store *store, const char *sandbox_id, const char *problem,
                      bool *ret_changed)
{
    static const char set[] = "UPDATE sandboxes SET problem = ?2 WHERE sandbox_id = ?1"
                              " AND gone_at IS NULL AND problem IS NOT ?2";
    int changes = 0;
    int r = sql_run(&store->connection, set, &changes, sql_text(sandbox_id), sql_text(problem));

    *ret_changed = changes > 0;
    return r;
}

int store_find_problem(struct store *store, char *ret_text, size_t size)
{
    static const char find[] = "SELECT sandbox_id || ': ' || problem FROM sandboxes"
                               " WHERE problem IS NOT NULL AND gone_at IS NULL LIMIT 1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first_values(&store->connection, find, &rows, NULL, 0);

    ret_text[0] = '\0';
    if (r > 0)
        sql_take_text(&rows, ret_text, size);
    return r < 0 ? r : 0;
}

int store_set_orphaned(struct store *store, const char *sandbox_id, bool orphaned,
                       const struct store_drive *held, unsigned count, bool *ret_changed)
{
    static const char has_twin[] = "SELECT 1 FROM sandboxes WHERE vmm_pid = ?1"
                                   " AND gone_at IS NULL AND sandbox_ref <> ?2";
    static const char set[] = "UPDATE sandboxes SET orphaned = ?2 WHERE sandbox_ref = ?1"
                              " AND orphaned <> ?2";
    /* They were places in the runtime's list of drives. */
    static const char forget[] = "UPDATE sandbox_claims SET drive = -1 WHERE sandbox_ref = ?1";
    struct store_sandbox drives = {.drives = count, .drive = held};
    struct known_sandbox known;
    int changes = 0, records = 0;
    int r = find_alive(store, sandbox_id, &known);

    if (r == 0 && orphaned)
        r = sql_find(&store->connection, has_twin, NULL, sql_number(known.vmm_pid),
                     sql_number(known.sandbox_ref));
    orphaned &= r == 0;
    if (r >= 0)
        r = sql_run(&store->connection, set, &changes, sql_number(known.sandbox_ref),
                    sql_number(orphaned));
    if (r == 0 && orphaned && changes)
        r = sql_run(&store->connection, forget, NULL, sql_number(known.sandbox_ref));
    if (r == 0 && orphaned && count)
        r = write_drives(store, &drives, known.sandbox_ref, &records);
    *ret_changed = changes || records;
    if (r < 0 || !changes)
        return r;
    return journal_write(
        store,
        &(struct journal_line){.kind = "sandbox_changed",
                               .sandbox_id = sandbox_id,
                               .detail = {{"status", sql_text(orphaned ? "orphaned" : "alive")},
                                          {"vmm_pid", sql_number(known.vmm_pid)}}});
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

/* One at a time, because ending a sandbox changes the rows that are searched. As sql_next(). */
static int next_of_other_boots(struct store *store, int64_t *ret_ref, char *ret_id, size_t size)
{
    static const char next[] = "SELECT sandbox_ref, sandbox_id FROM sandboxes"
                               " WHERE gone_at IS NULL AND boot_id <> ?1 LIMIT 1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first(&store->connection, next, &rows, sql_text(store->boot_id));

    if (r <= 0)
        return r;
    *ret_ref = sql_take_number(&rows);
    sql_take_text(&rows, ret_id, size);
    return SQL_ROW;
}

int sandboxes_end_other_boots(struct store *store)
{
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    int64_t ref;
    int r;

    while ((r = next_of_other_boots(store, &ref, sandbox_id, sizeof(sandbox_id))) > 0) {
        r = end_sandbox(store, ref, sandbox_id);
        if (r < 0)
            return r;
    }
    return r;
}

int store_each_live_sandbox(struct store *store,
                            int (*callback)(void *userdata, const char *sandbox_id, pid_t vmm_pid),
                            void *userdata)
{
    static const char all[] = "SELECT vmm_pid, sandbox_id FROM sandboxes WHERE gone_at IS NULL";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(&store->connection, all, &rows, NULL, 0);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        pid_t vmm_pid = (pid_t)sql_take_number(&rows);

        r = callback(userdata, sql_borrow_text(&rows), vmm_pid);
    }
    return r;
}

int store_set_agent_address(struct store *store, int64_t sandbox_ref, const char *address)
{
    static const char set[] = "UPDATE sandboxes SET agent_address = ?2 WHERE sandbox_ref = ?1"
                              " AND gone_at IS NULL AND agent_address IS NOT ?2";
    static const char find[] = "SELECT sandbox_id FROM sandboxes WHERE sandbox_ref = ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int changes = 0;
    int r = sql_run(&store->connection, set, &changes, sql_number(sandbox_ref), sql_text(address));

    if (r == 0 && changes)
        r = sql_first(&store->connection, find, &rows, sql_number(sandbox_ref));
    if (r <= 0)
        return r;
    return journal_write(store,
                         &(struct journal_line){.kind = "sandbox_changed",
                                                .sandbox_id = sql_borrow_text(&rows),
                                                .detail = {{"agent_address", sql_text(address)}}});
}

int store_set_vmm_version(struct store *store, int64_t sandbox_ref, const char *version)
{
    static const char set[] = "UPDATE sandboxes SET vmm_version = ?2"
                              " WHERE sandbox_ref = ?1 AND vmm_version IS NOT ?2";

    return sql_run(&store->connection, set, NULL, sql_number(sandbox_ref), sql_text(version));
}

int store_set_ability(struct store *store, int64_t sandbox_ref, enum guest_route route,
                      const char *ability)
{
    static const char companion[] = "UPDATE sandboxes SET companion_ability = ?2"
                                    " WHERE sandbox_ref = ?1 AND companion_ability IS NOT ?2";
    static const char agent[] = "UPDATE sandboxes SET agent_ability = ?2"
                                " WHERE sandbox_ref = ?1 AND agent_ability IS NOT ?2";
    static const char shim[] = "UPDATE sandboxes SET shim_ability = ?2"
                               " WHERE sandbox_ref = ?1 AND shim_ability IS NOT ?2";
    static const char helper[] = "UPDATE sandboxes SET helper_ability = ?2"
                                 " WHERE sandbox_ref = ?1 AND helper_ability IS NOT ?2";
    static const char *const set[GUEST_ROUTES] = {NULL, companion, agent, shim, helper};

    return sql_run(&store->connection, set[route], NULL, sql_number(sandbox_ref),
                   sql_text(ability));
}

/* ---- helper runs ---------------------------------------------------------------------------- */

/* Helpers that were going to be brought into a guest, and are not known to be
 * removed.
 *
 * A row is committed before the first file or container of that name is made, and deleted once both
 * are gone. So after a crash the rows show what may have been left behind, and where.
 */

static int journal_run(struct store *store, const char *kind, int64_t sandbox_ref, const char *name)
{
    static const char find[] = "SELECT sandbox_id FROM sandboxes WHERE sandbox_ref = ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first(&store->connection, find, &rows, sql_number(sandbox_ref));

    if (r <= 0)
        return r;
    return journal_write(store, &(struct journal_line){.kind = kind,
                                                       .sandbox_id = sql_borrow_text(&rows),
                                                       .detail = {{"name", sql_text(name)}}});
}

int store_put_helper_run(struct store *store, int64_t sandbox_ref, const char *name, bool grows)
{
    static const char put[] =
        "INSERT INTO helper_runs (name, sandbox_ref, begun_at) VALUES (?1, ?2, ?3)";
    int r = sql_run(&store->connection, put, NULL, sql_text(name), sql_number(sandbox_ref),
                    sql_number(store->now_ms));

    return r == 0 && grows ? journal_run(store, "helper_intended", sandbox_ref, name) : r;
}

int store_forget_helper_run(struct store *store, const char *name)
{
    static const char forget[] = "DELETE FROM helper_runs WHERE name = ?1";

    return sql_run(&store->connection, forget, NULL, sql_text(name));
}

int store_note_helper_removed(struct store *store, int64_t sandbox_ref, const char *name)
{
    return journal_run(store, "helper_removed", sandbox_ref, name);
}

#define SANDBOX                                                                                    \
    "s.sandbox_ref, s.gone_at IS NULL, s.sandbox_id, s.runtime, s.hypervisor, s.vmm_pid,"          \
    " s.vmm_start_ns, s.control_socket, s.agent_address"

static void take_sandbox(struct sql_rows *rows, struct store_helper_run *run)
{
    run->sandbox_ref = sql_take_number(rows);
    run->is_alive = sql_take_number(rows) != 0;
    TAKE_TEXT(rows, run->sandbox_id);
    run->runtime = runtime_from_name(sql_borrow_text(rows));
    run->hypervisor = hypervisor_kind_from_name(sql_borrow_text(rows));
    run->vmm_pid = (pid_t)sql_take_number(rows);
    run->vmm_start_ns = (uint64_t)sql_take_number(rows);
    TAKE_TEXT(rows, run->control_socket);
    TAKE_TEXT(rows, run->agent_address);
}

int store_get_helper_sandbox(struct store *store, int64_t sandbox_ref,
                             struct store_helper_run *ret_run)
{
    static const char find[] = "SELECT " SANDBOX " FROM sandboxes s WHERE s.sandbox_ref = ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_first(&store->connection, find, &rows, sql_number(sandbox_ref));

    *ret_run = (struct store_helper_run){0};
    if (r > 0)
        take_sandbox(&rows, ret_run);
    return r < 0 ? r : 0;
}

static int each(struct store *store, const char *text, bool has_name,
                store_helper_callback *callback, void *userdata)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = sql_query_values(&store->connection, text, &rows, NULL, 0);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        struct store_helper_run run = {0};

        take_sandbox(&rows, &run);
        if (has_name)
            TAKE_TEXT(&rows, run.name);
        r = callback(userdata, &run);
    }
    return r;
}

int store_each_helper_run(struct store *store, store_helper_callback *callback, void *userdata)
{
    static const char all[] = "SELECT " SANDBOX ", h.name FROM helper_runs h"
                              " JOIN sandboxes s ON s.sandbox_ref = h.sandbox_ref";

    return each(store, all, true, callback, userdata);
}

int store_each_helper_sandbox(struct store *store, store_helper_callback *callback, void *userdata)
{
    static const char all[] = "SELECT " SANDBOX " FROM sandboxes s WHERE s.gone_at IS NULL";

    return each(store, all, false, callback, userdata);
}
