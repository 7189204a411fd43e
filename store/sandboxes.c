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

    *ret_known = (struct known_sandbox){0};
    if (r <= 0)
        return r;
    TAKE(&rows, ret_known->sandbox_ref, ret_known->vmm_pid, ret_known->vmm_start_ns,
         ret_known->orphaned);
    return 0;
}

static int end_sandbox(struct store *store, int64_t sandbox_ref, const char *sandbox_id)
{
    int r = bindings_close_of_sandbox(store, sandbox_ref);

    if (r == 0)
        r = STORE_RUN(store, "UPDATE sandboxes SET gone_at = ?2 WHERE sandbox_ref = ?1",
                      sandbox_ref, store->now_ms);
    if (r == 0)
        r = STORE_RUN(store, "DELETE FROM sandbox_drives WHERE sandbox_ref = ?1", sandbox_ref);
    if (r == 0)
        r = STORE_RUN(store, "DELETE FROM sandbox_claims WHERE sandbox_ref = ?1", sandbox_ref);
    return r < 0 ? r : JOURNAL(store, "sandbox_gone", ABOUT(.sandbox_id = sandbox_id));
}

static int add_sandbox(struct store *store, const struct store_sandbox *sandbox, int64_t *ret_ref)
{
    static const char insert[] =
        "INSERT INTO sandboxes (boot_id, sandbox_id, runtime, hypervisor, vmm_pid, vmm_start_ns,"
        " control_socket, agent_address, pod_namespace, pod_name, first_seen)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    int r = STORE_RUN(store, insert, store->boot_id, sandbox->sandbox_id,
                      runtime_name(sandbox->runtime), hypervisor_name(sandbox->hypervisor),
                      sql_known(sandbox->vmm_pid), sql_known(sandbox->vmm_start_ns),
                      sandbox->control_socket, sandbox->agent_address, sandbox->pod_namespace,
                      sandbox->pod_name, store->now_ms);

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
    int r = STORE_RUN(store, forget_abilities, ref, socket, agent);

    return r < 0 ? r
                 : STORE_CHANGE(store, change, ret_changes, ref, runtime_name(sandbox->runtime),
                                hypervisor_name(sandbox->hypervisor), socket, agent,
                                sandbox->pod_namespace, sandbox->pod_name);
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
    int r =
        STORE_CHANGE(store, "DELETE FROM sandbox_drives WHERE sandbox_ref = ?1 AND position >= ?2",
                     ret_changes, ref, sandbox->drives);

    for (unsigned i = 0; r == 0 && i < sandbox->drives; i++) {
        const struct store_drive *drive = &sandbox->drive[i];
        int changes = 0;

        r = STORE_CHANGE(store, put, &changes, ref, i, drive->mount_source, drive->file,
                         drive->major, drive->minor, drive->drive_id, drive->guest_path);
        *ret_changes += changes;
    }
    return r;
}

#define CLAIM "source, guest_path, carrier, drive, major, minor"
#define NEW_CLAIM                                                                                  \
    "excluded.source, excluded.guest_path, excluded.carrier, excluded.drive, excluded.major,"      \
    " excluded.minor"

static int write_claims(struct store *store, const struct store_sandbox *sandbox, int64_t ref,
                        int *ret_changes)
{
    static const char put[] =
        "INSERT INTO sandbox_claims (sandbox_ref, path, " CLAIM ")"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO UPDATE"
        " SET (" CLAIM ") = (" NEW_CLAIM ") WHERE (" CLAIM ") IS NOT (" NEW_CLAIM ")";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r =
        STORE_QUERY(store, "SELECT path FROM sandbox_claims WHERE sandbox_ref = ?1", &rows, ref);

    /* Claims that were not recorded this time are deleted. */
    while (r == 0 && (r = sql_next(&rows)) > 0) {
        const char *path = sql_borrow_text(&rows);
        unsigned i = 0;

        while (i < sandbox->claims && strcmp(sandbox->claim[i].path, path) != 0)
            i++;
        r = 0;
        if (i == sandbox->claims) {
            r = STORE_RUN(store, "DELETE FROM sandbox_claims WHERE sandbox_ref = ?1 AND path = ?2",
                          ref, path);
            ++*ret_changes;
        }
    }
    for (unsigned i = 0; r == 0 && i < sandbox->claims; i++) {
        const struct store_claim *claim = &sandbox->claim[i];
        int changes = 0;

        r = STORE_CHANGE(store, put, &changes, ref, claim->path, claim->source, claim->guest_path,
                         claim->carrier, claim->drive, sql_known(major(claim->given)),
                         claim->given ? sql_number(minor(claim->given)) : sql_known(0));
        *ret_changes += changes;
    }
    return r;
}

int store_find_given_device(struct store *store, const char *path, dev_t *ret_device)
{
    static const char find[] = "SELECT major, minor FROM sandbox_claims"
                               " WHERE path = ?1 AND major IS NOT NULL LIMIT 1";
    cleanup(sql_end) struct sql_rows rows = {0};
    uint32_t major = 0, minor = 0;
    int r = STORE_FIRST(store, find, &rows, path);

    if (r > 0)
        TAKE(&rows, major, minor);
    *ret_device = makedev(major, minor);
    return r < 0 ? r : 0;
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
        r = JOURNAL(store, added ? "sandbox_alive" : "sandbox_changed",
                    ABOUT(.sandbox_id = sandbox->sandbox_id), "vmm_pid",
                    sql_known(sandbox->vmm_pid), "control_socket", sandbox->control_socket,
                    "agent_address", sandbox->agent_address, "drives", sandbox->drives);
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
    int r = STORE_CHANGE(store, set, &changes, sandbox_id, problem);

    *ret_changed = changes > 0;
    return r;
}

int store_find_problem(struct store *store, char *ret_text, size_t size)
{
    static const char find[] = "SELECT sandbox_id || ': ' || problem FROM sandboxes"
                               " WHERE problem IS NOT NULL AND gone_at IS NULL LIMIT 1";
    int r = STORE_FIND_TEXT(store, find, ret_text, size);

    return r < 0 ? r : 0;
}

int store_set_orphaned(struct store *store, const char *sandbox_id, bool orphaned,
                       const struct store_drive *held, unsigned count, bool *ret_changed)
{
    static const char has_twin[] = "SELECT 1 FROM sandboxes WHERE vmm_pid = ?1"
                                   " AND gone_at IS NULL AND sandbox_ref <> ?2";
    struct store_sandbox drives = {.drives = count, .drive = held};
    struct known_sandbox known;
    int changes = 0, records = 0;
    int r = find_alive(store, sandbox_id, &known);

    if (r == 0 && orphaned)
        r = STORE_FIND(store, has_twin, NULL, known.vmm_pid, known.sandbox_ref);
    orphaned &= r == 0;
    if (r >= 0)
        r = STORE_CHANGE(
            store, "UPDATE sandboxes SET orphaned = ?2 WHERE sandbox_ref = ?1 AND orphaned <> ?2",
            &changes, known.sandbox_ref, orphaned);
    if (r == 0 && orphaned && changes) /* they were places in the runtime's list of drives */
        r = STORE_RUN(store, "UPDATE sandbox_claims SET drive = -1 WHERE sandbox_ref = ?1",
                      known.sandbox_ref);
    if (r == 0 && orphaned && count)
        r = write_drives(store, &drives, known.sandbox_ref, &records);
    *ret_changed = changes || records;
    if (r < 0 || !changes)
        return r;
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
        int r = STORE_FIRST(store, next, &rows, store->boot_id);

        if (r <= 0)
            return r;
        TAKE(&rows, ref, sandbox_id);
        r = end_sandbox(store, ref, sandbox_id);
        if (r < 0)
            return r;
    }
}

int store_each_live_sandbox(struct store *store,
                            int (*callback)(void *userdata, const char *sandbox_id, pid_t vmm_pid),
                            void *userdata)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_QUERY(store, "SELECT vmm_pid, sandbox_id FROM sandboxes WHERE gone_at IS NULL",
                        &rows);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        pid_t vmm_pid = (pid_t)sql_take_number(&rows);

        r = callback(userdata, sql_borrow_text(&rows), vmm_pid);
    }
    return r;
}

/* A line about a sandbox of whatever time; none if its row is gone. */
static int journal_of(struct store *store, const char *kind, int64_t sandbox_ref, const char *name,
                      const char *value)
{
    char sandbox_id[STORE_SANDBOX_ID_BYTES];
    int r = STORE_FIND_TEXT(store, "SELECT sandbox_id FROM sandboxes WHERE sandbox_ref = ?1",
                            sandbox_id, sizeof(sandbox_id), sandbox_ref);

    return r <= 0 ? r : JOURNAL(store, kind, ABOUT(.sandbox_id = sandbox_id), name, value);
}

int store_set_agent_address(struct store *store, int64_t sandbox_ref, const char *address)
{
    static const char set[] = "UPDATE sandboxes SET agent_address = ?2 WHERE sandbox_ref = ?1"
                              " AND gone_at IS NULL AND agent_address IS NOT ?2";
    int changes = 0;
    int r = STORE_CHANGE(store, set, &changes, sandbox_ref, address);

    return r == 0 && changes
               ? journal_of(store, "sandbox_changed", sandbox_ref, "agent_address", address)
               : r;
}

int store_set_vmm_version(struct store *store, int64_t sandbox_ref, const char *version)
{
    static const char set[] = "UPDATE sandboxes SET vmm_version = ?2"
                              " WHERE sandbox_ref = ?1 AND vmm_version IS NOT ?2";

    return STORE_RUN(store, set, sandbox_ref, version);
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
    int r = STORE_RUN(store,
                      "INSERT INTO helper_runs (name, sandbox_ref, begun_at) VALUES (?1, ?2, ?3)",
                      name, sandbox_ref, store->now_ms);

    return r == 0 && grows ? journal_of(store, "helper_intended", sandbox_ref, "name", name) : r;
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

static void take_sandbox(struct sql_rows *rows, struct store_helper_run *run)
{
    TAKE(rows, run->sandbox_ref, run->is_alive, run->sandbox_id);
    run->runtime = runtime_from_name(sql_borrow_text(rows));
    run->hypervisor = hypervisor_kind_from_name(sql_borrow_text(rows));
    TAKE(rows, run->vmm_pid, run->vmm_start_ns, run->control_socket, run->agent_address);
}

int store_get_helper_sandbox(struct store *store, int64_t sandbox_ref,
                             struct store_helper_run *ret_run)
{
    static const char find[] = "SELECT " SANDBOX " FROM sandboxes s WHERE s.sandbox_ref = ?1";
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_FIRST(store, find, &rows, sandbox_ref);

    *ret_run = (struct store_helper_run){0};
    if (r > 0)
        take_sandbox(&rows, ret_run);
    return r < 0 ? r : 0;
}

static int each_helper(struct store *store, const char *text, store_helper_callback *callback,
                       void *userdata)
{
    cleanup(sql_end) struct sql_rows rows = {0};
    int r = STORE_QUERY(store, text, &rows);

    while (r == 0 && (r = sql_next(&rows)) > 0) {
        struct store_helper_run run = {0};

        take_sandbox(&rows, &run);
        TAKE(&rows, run.name);
        r = callback(userdata, &run);
    }
    return r;
}

int store_each_helper_run(struct store *store, store_helper_callback *callback, void *userdata)
{
    static const char all[] = "SELECT " SANDBOX ", h.name FROM helper_runs h"
                              " JOIN sandboxes s ON s.sandbox_ref = h.sandbox_ref";

    return each_helper(store, all, callback, userdata);
}

int store_each_helper_sandbox(struct store *store, store_helper_callback *callback, void *userdata)
{
    static const char all[] = "SELECT " SANDBOX ", '' FROM sandboxes s WHERE s.gone_at IS NULL";

    return each_helper(store, all, callback, userdata);
}
