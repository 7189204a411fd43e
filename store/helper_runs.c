/* SPDX-License-Identifier: Apache-2.0 */
/* helper_runs.c - helpers that were going to be brought into a guest, and are not known to be
 * removed.
 *
 * A row is committed before the first file or container of that name is made, and deleted once both
 * are gone. So after a crash the rows show what may have been left behind, and where.
 */
#include <string.h>

#include "store/internal.h"

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
