/* SPDX-License-Identifier: Apache-2.0 */
/* clients_fixture.h - clients that wait, with a core, a guest, devices and a runtime's tool that do
 * as the test says. */
#pragma once

#include "tests/unit/reconciler/surroundings.h"

#include "lib/encode.h"
#include "reconciler/core/reconciler_internal.h"
#include "reconciler/drive/drives.h"
#include "reconciler/helper/helper.h"
#include "tests/unit/reconciler/fake_child.h"
#include "tests/unit/reconciler/fake_devices.h"
#include "tests/unit/reconciler/fake_guest.h"
#include "tests/unit/volume_rows.h"

#define STAGED        "/staged"
#define KATA_VOLUMES  "/run/kata-containers/shared/direct-volumes"
#define CRUST_VOLUMES "/run/crust"
#define TOOL          "/opt/kata/bin/runtime-tool"

static struct {
    struct surroundings node;
    struct reconciler core;
    bool full, vanishes; /* so the core finds what was staged */
    unsigned answers;
    enum status_code code;
    char error[ERROR_TEXT_BYTES];
    struct {
        bool is_there;
        enum drive_state state;
        enum status_code code, get_code;
        unsigned attached, detached, cancelled;
        bool writable, has_fs_group;
        reconciler_drive_done *done;
        void *userdata;
    } drive;
} test;

/* ---- the core, in the place of its own functions ---- */

bool scan_is_over_limit(const struct scan *scan)
{
    return test.full;
}

/* Below the root; lives until the next call. */
static const char *directory_of(enum volume_layout layout, const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s",
                   layout == LAYOUT_KATA ? KATA_VOLUMES : CRUST_VOLUMES, name);
    return path;
}

/* A directory that is there is a volume of that name; what it says of itself is of no matter here.
 */
int observer_observe_entry(const struct context *context, enum reconciler_tree tree,
                           const char *name)
{
    const enum volume_layout layout = tree == TREE_KATA_VOLUMES ? LAYOUT_KATA : LAYOUT_CRUST;
    struct store_entry entry = entry_of(name, STAGED, 99);
    int64_t volume_id;
    bool changed;

    if (!tree_has(directory_of(layout, name)) || test.vanishes)
        return store_remove_entry(test.node.context.store, layout, name, &volume_id);
    entry.layout = layout;
    entry.directory_inode += layout;
    return row_put_entry(test.node.context.store, &entry, &volume_id, &changed);
}

int unresolved_offer(const struct context *context, const char *target_path, const char *source)
{
    return 0;
}

const char *devices_host_use_for_client(struct devices *devices, uint32_t major, uint32_t minor)
{
    return NULL;
}

/* ---- its drives ---- */

static enum status_code wait_for_drive(reconciler_drive_done *done, void *userdata,
                                       struct drive_wait **ret_wait, struct error *error)
{
    if (test.drive.code != STATUS_OK)
        return (enum status_code)error_set(error, test.drive.code, "no drive");
    test.drive.done = done;
    test.drive.userdata = userdata;
    *ret_wait = (void *)&test.drive;
    return STATUS_OK;
}

enum status_code reconciler_attach_drive(struct reconciler *reconciler,
                                         const struct reconciler_drive_attach *attach,
                                         reconciler_drive_done *done, void *done_userdata,
                                         struct drive_wait **ret_wait, struct error *error)
{
    test.drive.attached++;
    test.drive.writable = attach->writable;
    test.drive.has_fs_group = attach->has_fs_group;
    return wait_for_drive(done, done_userdata, ret_wait, error);
}

enum status_code reconciler_detach_drive(struct reconciler *reconciler, const char *drive_id,
                                         reconciler_drive_done *done, void *done_userdata,
                                         struct drive_wait **ret_wait, struct error *error)
{
    test.drive.detached++;
    return wait_for_drive(done, done_userdata, ret_wait, error);
}

enum status_code reconciler_get_drive(struct reconciler *reconciler, const char *drive_id,
                                      reconciler_drive_callback *callback, void *callback_userdata,
                                      struct error *error)
{
    const struct reconciler_drive drive = {.drive_id = drive_id, .state = test.drive.state};

    if (test.drive.get_code != STATUS_OK)
        return (enum status_code)error_set(error, test.drive.get_code, "cannot be read");
    if (!test.drive.is_there)
        return (enum status_code)error_set(error, STATUS_NOT_FOUND, "no such drive");
    (void)callback(callback_userdata, &drive);
    return STATUS_OK;
}

struct drive_wait *reconciler_drive_cancel(struct drive_wait *wait)
{
    assert_ptr_equal(wait, &test.drive);
    test.drive.cancelled++;
    return NULL;
}

static void begin(bool in_memory)
{
    memset(&test, 0, sizeof(test));
    clear_devices();
    fake_child_refused = 0;
    surroundings_begin(&test.node, in_memory);
    surroundings_bind(&test.node);
    test.core.context = test.node.context;
    test.core.config = test.node.config;
    test.core.context.helpers = helpers_new(&test.core.context);
    test.core.context.actor = actor_new(&test.core.context);
    assert_non_null(test.core.context.actor);
}

static int set_up(void **state)
{
    begin(false);
    return 0;
}

static inline int set_up_in_memory(void **state)
{
    begin(true);
    return 0;
}

static int tear_down(void **state)
{
    expansions_done(&test.core);
    stagings_done(&test.core);
    stats_done(&test.core);
    assert_null(actor_free(test.core.context.actor));
    assert_null(helpers_free(test.core.context.helpers));
    assert_null(fake_guest);
    assert_null(fake_child);
    surroundings_end(&test.node);
    return 0;
}

#define CLIENTS(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static inline struct store *the_store(void)
{
    return test.node.context.store;
}

/* Within a transaction of its own. */
static inline void change(const char *sql)
{
    execute_sql(the_store(), sql);
}

/* The sandbox ends. */
static inline void unbind(void)
{
    bool changed;

    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(store_close_binding(the_store(), test.node.bound.volume_id), 0);
    assert_int_equal(store_end_sandbox(the_store(), "sandbox-1", &changed), 0);
    assert_int_equal(store_commit(the_store()), 0);
}

static inline size_t queued_volumes(void)
{
    return key_queue_count(&test.node.queue.keys[KEYS_VOLUMES]);
}

/* One reconcile pass, as far as it is of these modules. */
static inline void pass(void)
{
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(stagings_record(&test.core), 0);
    assert_int_equal(expansions_note(&test.core, test.node.bound.volume_id), 0);
    assert_int_equal(store_commit(the_store()), 0);
    expansions_answer(&test.core);
    assert_int_equal(stagings_answer(&test.core), 0);
}

static inline void run_pass(void)
{
    surroundings_turn(&test.node, 1);
}

static inline void note(enum status_code code, const struct error *error)
{
    test.answers++;
    test.code = code;
    (void)snprintf(test.error, sizeof(test.error), "%s", error ? error->text : "");
}

/* The volume's runtime has left a tool to be asked by. */
static inline void leave_tool(mode_t mode)
{
    struct config_list *list = &test.node.config.crust.runtime_cli_allow;
    char hash[SHA256_HEX_BYTES], path[600];

    assert_true(config_list_add(list, TOOL));
    tree_make("/opt/kata/bin");
    tree_write(TOOL, "");
    assert_int_equal(chmod(tree_path(TOOL), mode), 0);
    sha256_hex(VOLUME_PATH, strlen(VOLUME_PATH), hash);
    tree_make(directory_of(LAYOUT_CRUST, hash));
    (void)snprintf(path, sizeof(path), "%s/runtime-cli", directory_of(LAYOUT_CRUST, hash));
    tree_write(path, TOOL "\n");
}
