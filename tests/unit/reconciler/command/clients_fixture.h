/* SPDX-License-Identifier: Apache-2.0 */
/* clients_fixture.h - clients that wait, with a core, a guest, devices and a runtime's tool that do
 * as the test says. */
#pragma once

#include "tests/unit/reconciler/surroundings.h"

#include "lib/base64url.h"
#include "lib/sha256.h"
#include "reconciler/act/actor.h"
#include "reconciler/command/clients.h"
#include "reconciler/helper/helper.h"
#include "tests/unit/reconciler/fake_child.h"
#include "tests/unit/reconciler/fake_devices.h"
#include "tests/unit/reconciler/fake_guest.h"

#define STAGED        "/staged"
#define KATA_VOLUMES  "/run/kata-containers/shared/direct-volumes"
#define CRUST_VOLUMES "/run/crust"
#define TOOL          "/opt/kata/bin/runtime-tool"

static struct {
    struct surroundings node;
    struct actor *actor;
    struct helpers *helpers;
    struct clients *clients;
    bool full, vanishes; /* so the core finds what was staged */
    const char *problem;
    const char *host_use;
    unsigned answers;
    enum status_code code;
    char error[ERROR_TEXT_BYTES];
    struct {
        bool is_there;
        enum drive_state state;
        enum status_code code, get_code;
        unsigned attached, detached, cancelled;
        char drive_id[DRIVE_ID_CHARS + 1];
        char vm_path[64], host_path[64], sandbox_id[64];
        char options[256];
        bool writable, has_fs_group;
        uint32_t fs_group;
        enum drive_group_policy policy;
        reconciler_drive_done *done;
        void *userdata;
    } drive;
} test;

/* ---- the core ---- */

static bool is_full(void *userdata)
{
    (void)userdata;
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
static int observe_entry_now(void *userdata, enum volume_layout layout, const char *name)
{
    struct store_entry entry = entry_of(name, STAGED, 99);
    int64_t volume_id;
    bool changed;

    (void)userdata;
    if (!tree_has(directory_of(layout, name)) || test.vanishes)
        return store_remove_entry(test.node.context.store, layout, name, &volume_id);
    entry.layout = layout;
    entry.directory_inode += layout;
    entry.problem = test.problem;
    return store_put_entry(test.node.context.store, &entry, &volume_id, &changed);
}

static int resolve_path(void *userdata, const char *target_path)
{
    (void)userdata;
    (void)target_path;
    return 0;
}

static const char *find_host_use(void *userdata, uint32_t major, uint32_t minor)
{
    (void)userdata;
    (void)major;
    (void)minor;
    return test.host_use;
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

static enum status_code attach_drive(void *userdata, const struct reconciler_drive_attach *attach,
                                     reconciler_drive_done *done, void *done_userdata,
                                     struct drive_wait **ret_wait, struct error *error)
{
    (void)userdata;
    test.drive.attached++;
    (void)snprintf(test.drive.drive_id, sizeof(test.drive.drive_id), "%s", attach->drive_id);
    (void)snprintf(test.drive.vm_path, sizeof(test.drive.vm_path), "%s", attach->vm_path);
    (void)snprintf(test.drive.host_path, sizeof(test.drive.host_path), "%s", attach->host_path);
    (void)snprintf(test.drive.sandbox_id, sizeof(test.drive.sandbox_id), "%s", attach->sandbox_id);
    test.drive.options[0] = '\0';
    for (unsigned i = 0; i < attach->options; i++) {
        strcat(test.drive.options, i ? " " : "");
        strcat(test.drive.options, attach->option[i]);
    }
    test.drive.writable = attach->writable;
    test.drive.has_fs_group = attach->has_fs_group;
    test.drive.fs_group = attach->fs_group;
    test.drive.policy = attach->fs_group_policy;
    return wait_for_drive(done, done_userdata, ret_wait, error);
}

static enum status_code detach_drive(void *userdata, const char *drive_id,
                                     reconciler_drive_done *done, void *done_userdata,
                                     struct drive_wait **ret_wait, struct error *error)
{
    (void)userdata;
    test.drive.detached++;
    (void)snprintf(test.drive.drive_id, sizeof(test.drive.drive_id), "%s", drive_id);
    return wait_for_drive(done, done_userdata, ret_wait, error);
}

static enum status_code get_drive(void *userdata, const char *drive_id,
                                  reconciler_drive_callback *callback, void *callback_userdata,
                                  struct error *error)
{
    const struct reconciler_drive drive = {.drive_id = drive_id, .state = test.drive.state};

    (void)userdata;
    if (test.drive.get_code != STATUS_OK)
        return (enum status_code)error_set(error, test.drive.get_code, "cannot be read");
    if (!test.drive.is_there)
        return (enum status_code)error_set(error, STATUS_NOT_FOUND, "no such drive");
    (void)callback(callback_userdata, &drive);
    return STATUS_OK;
}

static struct drive_wait *cancel_drive(struct drive_wait *wait)
{
    assert_ptr_equal(wait, &test.drive);
    test.drive.cancelled++;
    return NULL;
}

static const struct clients_core core = {
    .is_full = is_full,
    .observe_entry = observe_entry_now,
    .resolve_path = resolve_path,
    .find_host_use = find_host_use,
    .attach_drive = attach_drive,
    .detach_drive = detach_drive,
    .get_drive = get_drive,
    .cancel_drive = cancel_drive,
};

static void begin(bool in_memory)
{
    memset(&test, 0, sizeof(test));
    clear_devices();
    fake_child_refused = 0;
    fake_child_arguments[0] = '\0';
    surroundings_begin(&test.node, in_memory);
    surroundings_bind(&test.node);
    test.helpers = helpers_new(&test.node.context);
    test.actor = actor_new(&test.node.context, test.helpers);
    test.clients = clients_new(&(struct clients_options){.context = &test.node.context,
                                                         .actor = test.actor,
                                                         .helpers = test.helpers,
                                                         .core = &core});
    assert_non_null(test.clients);
}

static int set_up(void **state)
{
    (void)state;
    begin(false);
    return 0;
}

static inline int set_up_in_memory(void **state)
{
    (void)state;
    begin(true);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(clients_free(test.clients));
    assert_null(actor_free(test.actor));
    assert_null(helpers_free(test.helpers));
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
    return key_queue_count(&test.node.queue.volumes);
}

/* One reconcile pass, as far as it is of these modules. */
static inline void pass(void)
{
    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(stagings_record(test.clients), 0);
    assert_int_equal(expansions_note(test.clients, test.node.bound.volume_id), 0);
    assert_int_equal(store_commit(the_store()), 0);
    expansions_answer(test.clients);
    assert_int_equal(stagings_answer(test.clients), 0);
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
