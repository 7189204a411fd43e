/* SPDX-License-Identifier: Apache-2.0 */
/* drives_world.h - drive mounts in the scenery of drives_scenery.h: crustd's passes, and a client.
 */
#pragma once

#include "tests/unit/reconciler/drive/drives_scenery.h"

/* ---- crustd ---- */

static struct store *the_store(void)
{
    return world.node.context.store;
}

static bool pass(void)
{
    struct store *store = the_store();
    int r = store_begin(store);

    if (r == 0)
        r = drives_record(world.drives);
    if (r == 0)
        r = store_commit(store);
    if (r == 0)
        r = drives_go_on(world.drives);
    if (r < 0) {
        store_rollback(store);
        drives_roll_back(world.drives, "it is full");
    }
    open_disks();
    return r == 0;
}

static void pass_while_due(void)
{
    open_disks();
    for (unsigned i = 0; drives_are_due(world.drives); i++) {
        assert_true(i < 100);
        (void)pass();
    }
}

static enum world_call running_call(void)
{
    return world.vmm_call     ? VMM_CALL
           : world.guest_call ? GUEST_CALL
           : world.traits     ? TRAITS_CALL
           : world.search     ? SEARCH_CALL
                              : NO_CALL;
}

static void act(enum world_call call)
{
    if (call == VMM_CALL)
        vmm_acts();
    else if (call == GUEST_CALL)
        guest_acts();
}

static void finish(enum world_call call)
{
    if (call == VMM_CALL)
        vmm_answers();
    else if (call == GUEST_CALL)
        guest_answers();
    else if (call == TRAITS_CALL)
        traits_are_known();
    else if (call == SEARCH_CALL)
        search_ends();
}

/* One act, and what follows it up to the next. false: nothing runs. */
static bool step(void)
{
    enum world_call call;

    pass_while_due();
    call = running_call();
    act(call);
    finish(call);
    pass_while_due();
    return call != NO_CALL;
}

static inline void go_on(void)
{
    for (unsigned i = 0; step(); i++)
        assert_true(i < 100);
}

/* crustd is killed, and starts again. */
static inline void restart(void)
{
    world.drives = drives_free(world.drives);
    assert_int_equal(running_call(), NO_CALL);
    world.drives = drives_new(&world.node.context, &guest_ops);
    assert_non_null(world.drives);
}

/* The volume that is bound is to be decided again; it is not queued any more then. */
static inline bool take_queued_volume(void)
{
    int64_t volume_id;
    bool found = false;

    while (work_queue_take_volume(&world.node.queue, &volume_id))
        found |= volume_id == world.node.bound.volume_id;
    return found;
}

/* ---- a client ---- */

static void on_answer(void *userdata, enum status_code code, const struct reconciler_drive *drive,
                      const struct error *error)
{
    (void)userdata;
    world.answers++;
    world.code = code;
    world.state = drive ? drive->state : DRIVE_STATES;
    (void)snprintf(world.message, sizeof(world.message), "%s", drive ? drive->message : "");
    (void)snprintf(world.error, sizeof(world.error), "%s", error->text);
    assert_int_equal(code == STATUS_OK, drive != NULL);
}

static struct reconciler_drive_attach attach_of(const char *drive_id)
{
    static const char *const options[] = {"noatime"};

    return (struct reconciler_drive_attach){
        .drive_id = drive_id,
        .sandbox_id = "sandbox-1",
        .host_path = "/dev/disk-1",
        .vm_path = "/data",
        .fs_type = "ext4",
        .options = 1,
        .option = options,
        .writable = true,
    };
}

static enum status_code begin_attach(const struct reconciler_drive_attach *attach)
{
    struct drive_wait *wait;
    struct error error = {0};
    enum status_code code = drives_attach(world.drives, attach, on_answer, NULL, &wait, &error);

    (void)snprintf(world.error, sizeof(world.error), "%s", error.text);
    return code;
}

static inline void attach(void)
{
    struct reconciler_drive_attach asked = attach_of("data-1");

    assert_int_equal(begin_attach(&asked), STATUS_OK);
}

static inline void detach(void)
{
    struct drive_wait *wait;
    struct error error = {0};

    assert_int_equal(drives_detach(world.drives, "data-1", on_answer, NULL, &wait, &error),
                     STATUS_OK);
}

static inline void expect_answer(unsigned answers, enum status_code code, const char *text)
{
    if (world.answers != answers || world.code != code || !strstr(world.error, text))
        fail_msg("answered %u times, last with %s \"%s\"; walked %s", world.answers,
                 status_name((int)world.code), world.error, world.walked);
}

static inline void expect_row(enum drive_state state, bool wanted, enum status_code status)
{
    cleanup(store_drive_mount_done) struct store_drive_mount row = {0};

    assert_int_equal(store_get_drive_mount(the_store(), "data-1", &row), STORE_FOUND);
    if (row.state != state || row.wanted != wanted || row.status != status)
        fail_msg("the row is %s, %s, %s: %s; walked %s", drive_state_name(row.state),
                 row.wanted ? "wanted" : "unwanted", status_name((int)row.status), row.message,
                 world.walked);
}

static inline void expect_walked(const char *walked)
{
    assert_string_equal(world.walked, walked);
    world.walked[0] = '\0';
}

static inline void end_vm(void)
{
    bool changed;

    assert_int_equal(store_begin(the_store()), 0);
    assert_int_equal(store_end_sandbox(the_store(), "sandbox-1", &changed), 0);
    assert_int_equal(store_commit(the_store()), 0);
    world.vmm = HYPERVISOR_DRIVE_ABSENT;
    world.mounted = false;
    drives_note_sandbox(world.drives, "sandbox-1");
}

static inline void bring_in(void)
{
    attach();
    go_on();
    expect_answer(world.answers, STATUS_OK, "");
    assert_int_equal(world.state, DRIVE_READY);
    assert_true(world.mounted);
}

/* The disk of a drive that is there was block device 7:1 all the time; the world claims none. */
static inline void make_block_device(void)
{
    execute_sql(the_store(), "UPDATE drive_mounts SET kind = 'block', major = 7, minor = 1,"
                             " diskseq = 11");
    world.disk = (struct store_drive_mount_disk){
        .kind = DEVICE_KIND_BLOCK, .major = 7, .minor = 1, .diskseq = 11};
}

/* Up to an act of this kind that has begun. */
static inline void step_until(enum world_call call, int kind)
{
    for (unsigned i = 0; i < 20; i++) {
        pass_while_due();
        if (call == GUEST_CALL && world.guest_call && (int)world.guest_call->act == kind)
            return;
        if (call == VMM_CALL && world.vmm_call && (int)world.vmm_call->act == kind)
            return;
        assert_true(step());
    }
    fail_msg("no such act; walked %s", world.walked);
}

/* The guest is asked again once the VM has the disk, because its address is not known: the attach
 * has begun. */
static inline void attach_without_address(void)
{
    world.hides_address = true;
    attach();
    step_until(VMM_CALL, HYPERVISOR_DRIVE_ATTACH);
}

/* The first client's attach, and nothing is left of it. */
static inline void expect_failed(enum status_code code, const char *text)
{
    expect_answer(1, code, text);
    expect_row(DRIVE_FAILED, false, code);
    assert_int_equal(world.vmm, HYPERVISOR_DRIVE_ABSENT);
    assert_false(world.mounted);
}

/* ---- life ---- */

static int set_up(void **state)
{
    (void)state;
    memset(&world, 0, sizeof(world));
    world.claimed = -1;
    world.kind = HYPERVISOR_QEMU;
    world.disk = (struct store_drive_mount_disk){
        .kind = DEVICE_KIND_FILE, .file_device = 3, .inode = 9, .size_bytes = GIB};
    world.host_path = "/dev/disk-1";
    world.vmm = HYPERVISOR_DRIVE_ABSENT;
    surroundings_begin(&world.node, false);
    surroundings_bind(&world.node);
    world.node.config.drives.enabled = true;
    world.node.config.drives.host_prefixes =
        (struct config_list){.count = 2, .text = "/srv/disks\0/dev"};
    world.drives = drives_new(&world.node.context, &guest_ops);
    assert_non_null(world.drives);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_null(drives_free(world.drives));
    assert_int_equal(running_call(), NO_CALL);
    fd_close(world.claimed);
    surroundings_end(&world.node);
    return 0;
}

#define DRIVES(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)
